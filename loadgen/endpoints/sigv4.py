"""AWS Signature Version 4, with botocore's own signer, credential chain and renewal.

Locust must have been imported before this module: botocore imported first makes gevent's patching of ssl recurse.
"""

from __future__ import annotations

from typing import Any

import botocore.session
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from loadgen.endpoints.base import Target, http_request
from traces.errors import BadInputError


class Signer:
    """Signs requests to one service in one region. Raises `BadInputError` without a region or credentials."""

    def __init__(self, service: str, region: str | None) -> None:
        self._session: Any = botocore.session.get_session()
        self.service = service
        try:
            self.region: str = region or self._session.get_config_variable("region")
            self._credentials = self._session.get_credentials()
        except BotoCoreError as error:
            raise BadInputError(f"target: AWS configuration cannot be used ({error})") from None
        if not self.region:
            raise BadInputError("target: no region; add region to [target], --region, or AWS_REGION")
        if self._credentials is None:
            raise BadInputError("target: no AWS credentials found; set AWS_PROFILE or AWS_ACCESS_KEY_ID, or log in")
        self._frozen: Any = None

    def refresh(self) -> None:
        """Renew the credentials where their provider says so."""
        try:
            self._frozen = self._credentials.get_frozen_credentials()
        except BotoCoreError as error:
            if self._frozen is None:
                raise BadInputError(f"target: AWS credentials cannot be fetched ({error}); log in again") from None
            # With the old ones the requests go out and fail with the service's own words, which is what happened.

    def signed(self, target: Target, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        """Return a whole signed HTTP request, the given headers signed too."""
        named = {**headers, "Host": target.authority}
        request = AWSRequest(method="POST", url=target.origin + path, data=body, headers=named)
        SigV4Auth(self._frozen, self.service, self.region).add_auth(request)
        sent = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        return http_request(target, path, body, sent | {"User-Agent": "ramptrace"})

    def address(self, client_name: str) -> str:
        """Return AWS's own address of a service."""
        try:
            client = self._session.create_client(
                client_name, region_name=self.region, config=Config(retries={"total_max_attempts": 1})
            )
        except BotoCoreError as error:
            raise BadInputError(f"target: AWS configuration cannot be used ({error})") from None
        address: str = client.meta.endpoint_url
        return address
