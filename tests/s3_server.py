"""As much of S3 as reading traces, and keeping run directories there, needs: a server on loopback."""

from __future__ import annotations

import asyncio
import threading
from xml.sax.saxutils import escape

from aiohttp import web

PAGE = 2


class FakeS3:
    """Buckets of objects: Get-, Put- and DeleteObject, and ListObjectsV2 with prefixes and pages of two.

    `broken` answers each write with an error; the bucket `secret` refuses everything.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], bytes] = {}
        self.url, self.broken, self.writes = "", False, 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_get("/{bucket}", self._list)
        app.router.add_get("/{bucket}/{key:.+}", self._get)
        app.router.add_put("/{bucket}/{key:.+}", self._put)
        app.router.add_delete("/{bucket}/{key:.+}", self._delete)
        runner = web.AppRunner(app)
        self._loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0)
        self._loop.run_until_complete(site.start())
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _list(self, request: web.Request) -> web.Response:
        bucket, prefix = request.match_info["bucket"], request.query.get("prefix", "")
        if bucket == "secret":
            return web.Response(status=403, text="<Error><Code>AccessDenied</Code></Error>")
        begin = int(request.query.get("continuation-token", "0"))
        keys = sorted(key for name, key in self.objects if name == bucket and key.startswith(prefix))
        shown, more = keys[begin : begin + PAGE], begin + PAGE < len(keys)
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.objects[bucket, key])}</Size></Contents>"
            for key in shown
        )
        token = f"<NextContinuationToken>{begin + PAGE}</NextContinuationToken>" if more else ""
        body = f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{entries}</ListBucketResult>"
        return web.Response(text=body, content_type="application/xml")

    async def _get(self, request: web.Request) -> web.Response:
        found = self.objects.get((request.match_info["bucket"], request.match_info["key"]))
        if found is None:
            return web.Response(status=404, text="<Error><Code>NoSuchKey</Code></Error>")
        return web.Response(body=found)

    async def _put(self, request: web.Request) -> web.Response:
        body = await request.read()
        if self.broken:
            return web.Response(status=403, text="<Error><Code>AccessDenied</Code></Error>")
        assert "aws-chunked" not in request.headers.get("content-encoding", "")
        self.objects[request.match_info["bucket"], request.match_info["key"]] = body
        self.writes += 1
        return web.Response()

    async def _delete(self, request: web.Request) -> web.Response:
        self.objects.pop((request.match_info["bucket"], request.match_info["key"]), None)
        return web.Response(status=204)
