"""Where a cluster's address and credentials come from, and that they are renewed when they end."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import certifi
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from loadgen.collect.base import ExpiredError
from loadgen.collect.kube_client import Cluster
from loadgen.collect.offsets import Offsets
from traces.clock import ClientClock, EndpointClock
from traces.errors import BadInputError

# Each run of it makes the next token; `%s` is the file that counts them, and when a token ends.
PLUGIN = """
import json, pathlib
count = pathlib.Path({count!r})
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
status = {{"token": f"token-{{number}}", **{status!r}}}
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}}))
"""


def kubeconfig(folder: Path, url: str, status: dict[str, str]) -> Path:
    plugin = folder / "plugin.py"
    plugin.write_text(PLUGIN.format(count=str(folder / "count"), status=status))
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(plugin)],
            "interactiveMode": "Never",
        }
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(document))
    return file


def cluster(file: Path | None = None) -> Cluster:
    kubeconfig = None if file is None else str(file)
    return Cluster(ClientClock(), Offsets(EndpointClock()), url=None, kubeconfig=kubeconfig, context=None)


async def asked(folder: Path, status: dict[str, str], calls: int) -> list[Any]:
    """Return how calls went on a server that takes a token once, the second time too in between a renewal."""
    taken: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        token = request.headers.get("Authorization", "")
        if token in taken:
            return web.json_response({"message": "Unauthorized"}, status=401)
        taken.append(token)
        return web.json_response({"token": token})

    app = web.Application()
    app.router.add_get("/api", answer)
    server = TestServer(app)
    await server.start_server()
    found: list[Any] = []
    try:
        async with cluster(kubeconfig(folder, str(server.make_url("")).rstrip("/"), status)) as client:
            for _ in range(calls):
                try:
                    found.append((await client.get("/api")).data["token"])
                except ExpiredError:
                    found.append("refused")
    finally:
        await server.close()
    return found


def test_a_token_that_states_its_end_is_renewed_before(tmp_path: Path) -> None:
    found = asyncio.run(asked(tmp_path, {"expirationTimestamp": "2020-01-01T00:00:00Z"}, 3))
    assert "refused" not in found
    assert len(set(found)) == 3


def test_a_token_that_states_no_end_is_renewed_once_it_is_refused(tmp_path: Path) -> None:
    found = asyncio.run(asked(tmp_path, {}, 5))
    assert found == ["Bearer token-1", "refused", "Bearer token-2", "refused", "Bearer token-3"]


def test_inside_a_pod_its_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubernetes_asyncio.config import incluster_config

    (tmp_path / "token").write_text("the-pods-own")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", certifi.where())

    async def opened() -> str:
        async with cluster() as client:
            return client.host

    assert asyncio.run(opened()) == "https://10.0.0.1:443"


def test_without_any_cluster_one_line_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    async def opened() -> None:
        async with cluster():
            pass

    with pytest.raises(BadInputError, match="set KUBECONFIG"):
        asyncio.run(opened())
