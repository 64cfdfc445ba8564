"""The serving surface, read by the clients that exist for it."""

import asyncio
import json

import aiobotocore.session
import aiohttp
import pytest
from aiobotocore.config import AioConfig
from botocore.exceptions import ClientError, EventStreamError

from loadgen.emulator.config import EmulatorConfig, Faults, Serving
from loadgen.emulator.live import running_emulator

pytestmark = pytest.mark.e2e

CREDENTIALS = ("EMULATEDKEY", "emulated-secret")


def chat(tokens=20, **more):
    return {"messages": [{"role": "user", "content": "x" * 80}], "max_tokens": tokens, **more}


def streaming(tokens=20):
    return chat(tokens, stream=True, stream_options={"include_usage": True})


def events(text):
    lines = [line for line in text.split("\n\n") if line]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def serve(test, config=None, time_scale=50.0, **more):
    """Run an async test against a live emulator in this process."""

    async def run():
        async with running_emulator(config or EmulatorConfig(), time_scale=time_scale, **more) as url:
            await test(url)

    asyncio.run(run())


def runtime(url, credentials=CREDENTIALS):
    return aiobotocore.session.get_session().create_client(
        "sagemaker-runtime",
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id=credentials[0],
        aws_secret_access_key=credentials[1],
        config=AioConfig(retries={"total_max_attempts": 1}),
    )


def test_chat_completions_stream():
    async def test(url):
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{url}/v1/chat/completions", json=streaming()) as r,
        ):
            assert r.status == 200
            assert r.content_type == "text/event-stream"
            assert r.headers["x-ramptrace-unit"].startswith("i-")
            found = events(await r.text())
        assert found[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert [e["choices"][0]["delta"].get("content") is not None for e in found[1:-2]] == [True] * 20
        assert found[-2]["choices"][0]["finish_reason"] == "length"
        assert found[-1]["usage"] == {"prompt_tokens": 20, "completion_tokens": 20, "total_tokens": 40}

    serve(test)


def test_one_connection_carries_stream_after_stream():
    async def test(url):
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
            for tokens in (1, 3, 50):
                async with session.post(f"{url}/v1/chat/completions", json=streaming(tokens)) as r:
                    assert len(events(await r.text())) == tokens + 3

    serve(test)


def test_chat_completions_without_stream_and_models_and_errors():
    async def test(url):
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{url}/v1/chat/completions", json=chat(7)) as r:
                body = await r.json()
                assert body["usage"]["completion_tokens"] == 7
                assert body["choices"][0]["message"]["content"]
            async with session.post(f"{url}/v1/chat/completions", data=b"{") as r:
                assert r.status == 400
                assert (await r.json())["error"]["type"] == "invalid_request_error"
            async with session.get(f"{url}/v1/models") as r:
                assert (await r.json())["data"][0]["id"] == "qwen3-8b"
            async with session.get(f"{url}/health") as r:
                assert r.status == 200

    serve(test)


def test_tokens_come_one_after_another_and_not_at_the_end():
    async def test(url):
        loop = asyncio.get_running_loop()
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{url}/v1/chat/completions", json=streaming()) as r,
        ):
            at = [loop.time() async for _ in r.content.iter_any()]
        assert len(at) >= 15

    # 40 ms per token in real time: far apart enough to be writes of their own, whatever the machine does.
    serve(test, time_scale=1)


def test_a_client_that_leaves_frees_its_slot():
    async def test(url):
        async with aiohttp.ClientSession() as session:

            async def state():
                async with session.get(f"{url}/_ramptrace/state") as r:
                    return await r.json()

            gone = [
                asyncio.create_task(session.post(f"{url}/v1/chat/completions", json=chat(10_000))) for _ in range(6)
            ]
            while (await state())["queued"] < 2:
                await asyncio.sleep(0.01)
            for task in gone:
                task.cancel()
            await asyncio.gather(*gone, return_exceptions=True)
            while (now := await state())["queued"] or any(now["in_service"].values()):
                await asyncio.sleep(0.01)

    serve(test, time_scale=1)


def test_a_full_queue_is_an_overload_in_each_surfaces_own_shape():
    async def test(url):
        async with aiohttp.ClientSession() as session, runtime(url) as client:
            body = json.dumps(chat(2000)).encode()
            busy = asyncio.create_task(session.post(f"{url}/v1/chat/completions", data=body))
            await asyncio.sleep(0.1)
            async with session.post(f"{url}/v1/chat/completions", json=chat()) as r:
                assert r.status == 503
                assert (await r.json())["error"]["type"] == "overloaded_error"
            with pytest.raises(ClientError) as caught:
                await client.invoke_endpoint_with_response_stream(EndpointName="demo", Body=json.dumps(chat()))
            assert caught.value.response["Error"]["Code"] == "ModelError"
            assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 424
            busy.cancel()
            await asyncio.gather(busy, return_exceptions=True)

    serve(test, EmulatorConfig(serving=Serving(slots_per_instance=1, queue_timeout_s=5)), credentials=CREDENTIALS)


def test_invoke_endpoint():
    async def test(url):
        async with runtime(url) as client:
            answer = await client.invoke_endpoint(
                EndpointName="demo", Body=json.dumps(chat(5)), ContentType="application/json"
            )
            assert answer["InvokedProductionVariant"] == "AllTraffic"
            assert answer["CustomAttributes"].startswith("unit_id=i-")
            assert answer["ContentType"] == "application/json"
            assert json.loads(await answer["Body"].read())["usage"]["completion_tokens"] == 5
            with pytest.raises(ClientError, match="not found") as caught:
                await client.invoke_endpoint(EndpointName="other", Body=b"{}")
            assert caught.value.response["Error"]["Code"] == "ValidationError"
            with pytest.raises(ClientError) as caught:
                await client.invoke_endpoint(EndpointName="demo", Body=b"not json")
            assert caught.value.response["Error"]["Code"] == "ModelError"

    serve(test, credentials=CREDENTIALS)


def test_invoke_endpoint_with_response_stream():
    async def test(url):
        async with runtime(url) as client:
            answer = await client.invoke_endpoint_with_response_stream(
                EndpointName="demo", Body=json.dumps(streaming(30)), ContentType="application/json"
            )
            assert answer["InvokedProductionVariant"] == "AllTraffic"
            assert answer["CustomAttributes"].startswith("unit_id=i-")
            assert answer["ContentType"] == "text/event-stream"
            parts = [part["PayloadPart"]["Bytes"] async for part in answer["Body"]]
        assert not all(part.endswith(b"\n\n") for part in parts), "parts are cut at arbitrary places"
        found = events(b"".join(parts).decode())
        assert len(found) == 33
        assert found[-1]["usage"]["completion_tokens"] == 30

    serve(test, credentials=CREDENTIALS)


def test_a_stream_that_breaks_half_way_fails_after_its_200():
    async def test(url):
        async with runtime(url) as client:
            answer = await client.invoke_endpoint_with_response_stream(
                EndpointName="demo", Body=json.dumps(streaming())
            )
            parts = []

            async def read():
                async for part in answer["Body"]:
                    parts.append(part["PayloadPart"]["Bytes"])  # noqa: PERF401 - it ends with an error

            with pytest.raises(EventStreamError) as caught:
                await read()
            assert caught.value.response["Error"]["Code"] == "ModelStreamError"
            assert b"".join(parts).count(b'"content":" ') == 10
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{url}/v1/chat/completions", json=streaming()) as r,
        ):
            text = await r.text()
            assert r.status == 200
        assert text.count('"content":" ') == 10
        assert '"error":{' in text
        assert "[DONE]" not in text

    serve(test, EmulatorConfig(faults=Faults(broken_stream_share=1.0)), credentials=CREDENTIALS)


def test_an_invocation_with_a_wrong_signature_is_refused():
    async def test(url):
        async with runtime(url, ("EMULATEDKEY", "wrong")) as client:
            with pytest.raises(ClientError) as caught:
                await client.invoke_endpoint(EndpointName="demo", Body=json.dumps(chat()))
            assert caught.value.response["Error"]["Code"] == "InvalidSignatureException"
            assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403

    serve(test, credentials=CREDENTIALS)
