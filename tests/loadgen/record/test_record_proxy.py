"""The recording proxy between a small upstream and clients, all on loopback."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import polars as pl
import pytest
from aiohttp import web
from yarl import URL

import ramptrace
from loadgen.record.proxy import Proxy, quiet_logs
from loadgen.record.session import parse_listen, parse_upstream
from loadgen.record.shards import ShardStore, parts_folder, recover
from traces.errors import BadInputError
from traces.lineage import steps_of
from traces.readers import open_trace

CHAT = "/v1/chat/completions"
ASK = {"model": "m-1", "messages": [{"role": "user", "content": "a secret question"}], "stream": True}
USAGE = {"prompt_tokens": 21, "completion_tokens": 4}
EVENTS = [
    b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n',
    'data: {"choices":[{"delta":{"content":"Grüße"}}]}\n\n'.encode(),
    b": a comment\r\n\r\n",
    b'data: {"choices":[],"usage":{"prompt_tokens":21,"completion_tokens":4}}\n\ndata: [DONE]\n\n',
]


@asynccontextmanager
async def served(application: web.Application):
    runner = web.AppRunner(application, handler_cancellation=True, access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def through(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]] | None,
    test: Callable[[aiohttp.ClientSession, str], Awaitable[None]],
) -> list[dict]:
    """Run `test` with the address of a proxy in front of `handler` (None: nothing listens); return the rows."""
    rows: list[dict] = []
    quiet_logs()

    async def run(upstream: str) -> None:
        proxy = Proxy(
            URL(upstream), now_us=iter(range(10**6)).__next__, record=lambda row, _body, _chunks: rows.append(row)
        )
        async with served(proxy.application()) as url, aiohttp.ClientSession(auto_decompress=False) as client:
            await asyncio.wait_for(test(client, url), 20)

    async def main() -> None:
        if handler is None:
            await run("http://127.0.0.1:9")
            return
        application = web.Application(client_max_size=0)
        application.router.add_route("*", "/{path:.*}", handler)
        async with served(application) as upstream:
            await run(upstream)

    asyncio.run(main())
    return rows


def test_a_stream_arrives_byte_for_byte_and_each_piece_before_the_next_is_sent():
    received = asyncio.Event()

    async def upstream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in EVENTS:
            received.clear()
            await response.write(event)
            # The next piece is sent only once the client has this one: a proxy that held it back would hang here.
            await received.wait()
        await response.write_eof()
        return response

    async def test(client: aiohttp.ClientSession, url: str) -> None:
        async with client.post(url + CHAT, json=ASK) as answer:
            assert answer.status == 200
            got = b""
            for event in EVENTS:
                while not got.endswith(event):
                    got += await answer.content.readany()
                received.set()
            got += await answer.content.read()
        assert got == b"".join(EVENTS)

    [row] = through(upstream, test)
    assert {
        key: row[key] for key in ("row_id", "input_tokens", "output_tokens", "model", "images", "source_status")
    } == {
        "row_id": 0,
        "input_tokens": 21,
        "output_tokens": 4,
        "model": "m-1",
        "images": 0,
        "source_status": 200,
    }
    assert row["source_latency_us"] >= 0
    assert "secret" not in str(row)


@pytest.mark.parametrize("packed", [False, True])
def test_a_whole_answer_and_its_headers_pass_unchanged(packed):
    body = json.dumps({"choices": [{"message": {"content": "hi"}}], "usage": USAGE}).encode()
    content = gzip.compress(body) if packed else body
    seen = {}

    async def upstream(request: web.Request) -> web.Response:
        seen.update(path=request.raw_path, headers=request.headers.copy(), body=await request.read())
        headers = [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("X-Request-Id", "r1"), ("Keep-Alive", "timeout=9")]
        if packed:
            headers.append(("Content-Encoding", "gzip"))
        response = web.Response(body=content, content_type="application/json")
        response.headers.extend(headers)
        return response

    question = json.dumps({**ASK, "messages": [{"content": [{"type": "image_url"}, {"type": "text"}]}]}).encode()

    async def test(client: aiohttp.ClientSession, url: str) -> None:
        headers = {
            "Authorization": "Bearer sk-1",
            "Connection": "x-private",
            "X-Private": "1",
            "TE": "trailers",
            "Accept-Encoding": "gzip",
        }
        async with client.post(URL(f"{url}{CHAT}?a=b%2Fc&d", encoded=True), data=question, headers=headers) as answer:
            assert await answer.read() == content
            assert answer.headers.getall("Set-Cookie") == ["a=1", "b=2"]
            assert answer.headers["X-Request-Id"] == "r1"
            assert "Keep-Alive" not in answer.headers
            assert answer.headers["Content-Length"] == str(len(content))

    [row] = through(upstream, test)
    assert (row["input_tokens"], row["output_tokens"], row["images"]) == (21, 4, 1)
    assert seen["path"] == f"{CHAT}?a=b%2Fc&d"
    assert seen["body"] == question
    assert seen["headers"]["Authorization"] == "Bearer sk-1"
    assert seen["headers"]["Accept-Encoding"] == "gzip"
    assert seen["headers"]["Content-Length"] == str(len(question))
    assert not {"X-Private", "TE"} & set(seen["headers"])
    assert seen["headers"]["Host"].startswith("127.0.0.1:")


def test_large_bodies_pass_whole_in_both_directions():
    blob = random.Random(1).randbytes(3_000_000)

    async def upstream(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    async def test(client: aiohttp.ClientSession, url: str) -> None:
        async def pieces():
            for at in range(0, len(blob), 70_001):
                yield blob[at : at + 70_001]

        async with client.post(url + "/v1/files", data=pieces()) as answer:
            assert hashlib.sha256(await answer.read()).digest() == hashlib.sha256(blob).digest()

    assert through(upstream, test) == []


def test_errors_redirects_and_other_paths_pass_through():
    async def upstream(request: web.Request) -> web.Response:
        if request.path == "/v1/models":
            return web.json_response({"data": []})
        if request.path == "/moved":
            return web.Response(status=307, headers={"Location": "/elsewhere"})
        return web.json_response({"error": {"type": "rate_limit"}}, status=429, headers={"Retry-After": "7"})

    async def test(client: aiohttp.ClientSession, url: str) -> None:
        async with client.post(url + CHAT, json=ASK) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (429, "7")
            assert await answer.json() == {"error": {"type": "rate_limit"}}
        async with client.get(url + "/v1/models") as answer:
            assert await answer.json() == {"data": []}
        async with client.get(url + "/moved", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (307, "/elsewhere")
        async with client.head(url + "/v1/models") as answer:
            assert (answer.status, await answer.read()) == (200, b"")

    [row] = through(upstream, test)
    assert (row["source_status"], row["output_tokens"], row["model"]) == (429, None, "m-1")


def test_a_client_that_goes_away_ends_the_upstream_request():
    ended = asyncio.Event()

    async def upstream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(EVENTS[0])
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return response

    async def test(client: aiohttp.ClientSession, url: str) -> None:
        answer = await client.post(url + CHAT, json=ASK)
        assert await answer.content.readany() == EVENTS[0]
        answer.close()
        await ended.wait()

    [row] = through(upstream, test)
    assert (row["source_status"], row["output_tokens"], row["model"]) == (499, None, "m-1")


def test_an_upstream_that_is_down_is_a_502_and_a_row():
    async def test(client: aiohttp.ClientSession, url: str) -> None:
        async with client.post(url + CHAT, json=ASK) as answer:
            assert answer.status == 502
            assert (await answer.json())["error"]["type"] == "upstream_unreachable"

    [row] = through(None, test)
    assert (row["source_status"], row["output_tokens"]) == (502, None)


def test_an_answer_that_breaks_off_breaks_off_for_the_client():
    async def upstream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(EVENTS[0])
        request.transport.abort()
        return response

    async def test(client: aiohttp.ClientSession, url: str) -> None:
        with pytest.raises(aiohttp.ClientError):
            async with client.post(url + CHAT, json=ASK) as answer:
                await answer.read()

    [row] = through(upstream, test)
    assert row["source_status"] == 502


def test_only_paths_are_asked_for():
    async def test(_client: aiohttp.ClientSession, url: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", URL(url).port)
        writer.write(b"GET http://169.254.169.254/latest HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        await writer.wait_closed()

    assert through(None, test) == []


def test_addresses_are_checked():
    assert parse_listen("127.0.0.1:0").is_loopback
    assert parse_listen("localhost:80").is_loopback
    assert not parse_listen("0.0.0.0:80").is_loopback
    assert not parse_listen("example:80").is_loopback
    for bad in ("8088", "h:", "h:99999", ":80"):
        with pytest.raises(BadInputError, match="HOST:PORT"):
            parse_listen(bad)
    assert str(parse_upstream("https://h:1/base")) == "https://h:1/base"
    for bad in ("h:80", "ftp://h", "http://user:pw@h", "http://h?x=1", "http://"):
        with pytest.raises(BadInputError) as caught:
            parse_upstream(bad)
        assert "pw" not in str(caught.value)


def row(number: int) -> dict:
    return {"row_id": number, "arrival_us": (7 - number) * 10}


def test_shards_join_in_order_of_arrival_each_row_once(tmp_path, monkeypatch):
    monkeypatch.setattr("loadgen.record.shards._COMPACT_SHARDS", 2)
    output = tmp_path / "t.parquet"
    store = ShardStore(output, 1_700_000_000_000_000, "http://h:1")
    for number in range(5):
        store.add(row(number))
        store.flush()
    folder = parts_folder(output)
    assert len(list(folder.iterdir())) < 5
    # A kill amid compaction leaves rows twice, one amid a shard leaves a file without its end.
    store._write(pl.read_parquet(store._live, schema=pl.read_parquet_schema(store._live[0])))
    (folder / "part-99999999.parquet").write_bytes(b"PAR1 and no more")
    assert recover(output) == 5
    assert not folder.exists()
    loaded = open_trace(str(output))
    assert loaded.scan().collect()["row_id"].to_list() == [4, 3, 2, 1, 0]
    assert loaded.origin_us == 1_700_000_000_000_030
    assert [step.name for step in steps_of(output)] == ["record"]
    with pytest.raises(BadInputError, match="exists already"):
        ShardStore(output, 0, "http://h:1")


def test_rows_wait_when_the_disk_is_full(tmp_path, monkeypatch):
    store = ShardStore(tmp_path / "t.parquet", 0, "http://h:1")
    store.add(row(0))
    with monkeypatch.context() as broken:
        broken.setattr("loadgen.record.shards.write_parquet", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(OSError, match="full"):
            store.flush()
    store.add(row(1))
    store.flush()
    assert recover(tmp_path / "t.parquet") == 2


@asynccontextmanager
async def recording(output: Path, upstream: str, *options: str):
    """Run `ramptrace trace record` as a user does; yields the process and its address."""
    root = Path(ramptrace.__file__).parent
    command = [sys.executable, "-m", "ramptrace", "trace", "record", "--upstream", upstream, "--listen", "127.0.0.1:0"]
    process = await asyncio.create_subprocess_exec(
        *command, "-o", str(output), "--json", *options,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=root, env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    try:
        line = (await asyncio.wait_for(process.stderr.readline(), 30)).decode()
        yield process, line.split()[2].rstrip(";")
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def answers(_request: web.Request) -> web.Response:
    return web.json_response({"usage": USAGE})


async def streams(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for word in ("one", "two", "three"):
        await response.write(b'data: {"choices": [{"delta": {"content": "%s"}}]}\n\n' % word.encode())
    await response.write(b"data: [DONE]\n\n")
    return response


def test_a_stream_without_usage_has_no_invented_lengths_and_its_chunks_are_counted(tmp_path):
    output = tmp_path / "t.parquet"

    async def main() -> None:
        application = web.Application()
        application.router.add_post(CHAT, streams)
        async with served(application) as upstream, recording(output, upstream) as (process, url):
            async with aiohttp.ClientSession() as client, client.post(url + CHAT, json=ASK) as answer:
                assert (await answer.read()).endswith(b"data: [DONE]\n\n")
            process.send_signal(signal.SIGTERM)
            out, _ = await asyncio.wait_for(process.communicate(), 30)
        summary = json.loads(out)
        counted = (summary["without_usage"], summary["streams_without_usage"], summary["chunks_without_usage"])
        assert counted == (1, 1, 3)

    asyncio.run(main())
    assert open_trace(str(output)).scan().collect()["output_tokens"].to_list() == [None]


def test_sigterm_closes_the_trace_and_nothing_of_content_is_on_disk(tmp_path):
    output = tmp_path / "t.parquet"

    async def main() -> None:
        application = web.Application()
        application.router.add_post(CHAT, answers)
        async with served(application) as upstream, recording(output, upstream) as (process, url):
            async with aiohttp.ClientSession(headers={"Authorization": "Bearer sk-secret"}) as client:
                for _ in range(3):
                    async with client.post(url + CHAT, json=ASK) as answer:
                        assert answer.status == 200
            process.send_signal(signal.SIGTERM)
            out, _ = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0
        summary = json.loads(out)
        assert (summary["rows"], summary["statuses"], summary["without_usage"]) == (3, {"200": 3}, 0)

    asyncio.run(main())
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]
    loaded = open_trace(str(output))
    assert loaded.account().rows_kept == 3
    assert loaded.account().first_arrival is not None
    frame = loaded.scan().collect()
    assert frame["input_tokens"].to_list() == [21] * 3
    assert frame["payload_ref"].null_count() == 3
    assert b"secret" not in output.read_bytes()


def test_a_killed_recording_is_recovered_and_kept_content_is_private(tmp_path, capsys):
    output, content = tmp_path / "t.parquet", tmp_path / "bodies.jsonl"

    async def main() -> None:
        application = web.Application()
        application.router.add_post(CHAT, answers)
        async with (
            served(application) as upstream,
            recording(output, upstream, "--keep-content", str(content)) as (process, url),
        ):
            async with aiohttp.ClientSession() as client:
                for _ in range(2):
                    async with client.post(url + CHAT, json=ASK) as answer:
                        await answer.read()
            while not list(parts_folder(output).glob("part-*.parquet")):
                await asyncio.sleep(0.05)
            process.kill()
            await process.wait()

    asyncio.run(main())
    assert not output.exists()
    for arguments, code in ((["--upstream", "http://127.0.0.1:9"], 2), (["--recover", "--json"], 0)):
        with pytest.raises(SystemExit) as ended:
            ramptrace.main(["trace", "record", "-o", str(output), *arguments])
        assert ended.value.code == code
    captured = capsys.readouterr()
    assert "was cut off" in captured.err
    assert json.loads(captured.out)["rows"] == 2
    assert pl.read_parquet(output)["payload_ref"].to_list() == ["bodies.jsonl#0", "bodies.jsonl#1"]
    assert content.stat().st_mode & 0o777 == 0o600
    assert json.loads(json.loads(content.read_text().splitlines()[0])["body"]) == ASK
