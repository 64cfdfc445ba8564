"""ECR: how large the image is, compressed. Optional, and read once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from loadgen.collect.aws import Api, Permission
from loadgen.collect.base import Reading

_IMAGE = re.compile(
    r"(?P<registry>\d{12})\.dkr\.ecr\.[\w-]+\.amazonaws\.com(?:\.cn)?/(?P<repository>[^:@]+)(?::(?P<tag>[^@]+)|@(?P<digest>sha256:\w+))?"
)


class Image(NamedTuple):
    """An image of a private registry, by tag or digest."""

    registry: str
    repository: str
    tag: str | None
    digest: str | None


class ImageSize:
    """Asks for the size of the endpoint's image as soon as its name is known."""

    name = "ecr"
    kept_us: int | None = 0
    permissions: ClassVar = (
        Permission("ecr", "describe_images", ("ecr:DescribeImages",), "the image's compressed size"),
    )

    def __init__(self, api: Api, period_us: int, image: Callable[[], str | None]) -> None:
        self.period_us = period_us
        self._api = api
        self._image = image
        self._known: str | None = None

    async def poll(self, now_us: int) -> Reading:  # noqa: ARG002 - the port passes it to every source
        """Return the snapshot of the image once, and again when the endpoint's image changes."""
        name = self._image()
        found = parse_image(name)
        if found is None or name == self._known:
            return Reading()
        wanted = {"imageDigest": found.digest} if found.digest else {"imageTag": found.tag or "latest"}
        answer = await self._api.call(
            "describe_images", registryId=found.registry, repositoryName=found.repository, imageIds=[wanted]
        )
        self._known = name
        return Reading(snapshots={"image": {"imageDetails": [_kept(d) for d in answer.data.get("imageDetails") or ()]}})


def parse_image(name: str | None) -> Image | None:
    """Return the parts of an image's name in a private registry; another registry's is `None`.

    >>> parse_image("123456789012.dkr.ecr.us-east-1.amazonaws.com/llm/lmi:18")
    Image(registry='123456789012', repository='llm/lmi', tag='18', digest=None)
    """
    found = _IMAGE.fullmatch(name or "")
    return None if found is None else Image(found["registry"], found["repository"], found["tag"], found["digest"])


def _kept(detail: dict[str, Any]) -> dict[str, Any]:
    return {key: detail.get(key) for key in ("repositoryName", "imageDigest", "imageTags", "imageSizeInBytes")}
