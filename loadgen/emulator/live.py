"""The emulator as a server: one process, one port on loopback, every protocol."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from collections.abc import AsyncIterator, Callable
from email.utils import format_datetime
from functools import lru_cache
from pathlib import Path

import polars as pl
from aiohttp import web

from loadgen.emulator.config import EmulatorConfig
from loadgen.emulator.driver import Driver
from loadgen.emulator.fleet import TruthRow
from loadgen.emulator.inference import Inference
from loadgen.emulator.kube_api import KubeApi
from loadgen.emulator.model import Model
from loadgen.emulator.platform import Gatekeeper, Platform
from traces.clock import to_datetime
from traces.errors import BadInputError
from traces.run import write_parquet
from traces.schema import Truth

SERVER = "ramptrace-emulator"
TRUTH_EVERY_S = 2.0
_LARGEST_BODY_BYTES = 64 * 1024 * 1024
_SHUTDOWN_S = 0.5


def build_app(driver: Driver, seed: int, credentials: tuple[str, str] | None) -> web.Application:
    """Return the application that serves a driver's model; with credentials, calls to AWS's services must be signed."""
    app = web.Application(client_max_size=_LARGEST_BODY_BYTES)
    gatekeeper = Gatekeeper(credentials)
    inference = Inference(driver, gatekeeper, seed)
    platform = Platform(driver, gatekeeper, seed)

    async def clock(_request: web.Request) -> web.Response:
        endpoint_us, client_us = driver.both_clocks_us()
        # A client whose own clock is wrong does not know by how much.
        endpoint_us -= round(driver.model.config.faults.clock_skew_s * 1e6)
        reading = {"emulated": True, "endpoint_us": endpoint_us, "client_us": client_us}
        return web.json_response({**reading, "time_scale": driver.clock.time_scale})

    async def state(_request: web.Request) -> web.Response:
        return web.json_response(driver.sync().state())

    async def health(_request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def sign(_request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Server"] = SERVER
        response.headers["Date"] = _http_date(driver.now_us() // 1_000_000)

    app.on_response_prepare.append(sign)
    app.router.add_get("/_ramptrace/clock", clock)
    app.router.add_get("/_ramptrace/state", state)
    app.router.add_get("/health", health)
    app.router.add_get("/v1/models", inference.models)
    app.router.add_post("/v1/chat/completions", inference.chat_completions)
    app.router.add_post("/endpoints/{name}/invocations", inference.invoke)
    app.router.add_post("/endpoints/{name}/invocations-response-stream", inference.invoke_with_response_stream)
    app.router.add_post("/", platform.call)
    app.router.add_post("/service/GraniteServiceVersion20100801/operation/{operation}", platform.call_cbor)
    app.router.add_get("/api/v1/query", platform.query)
    app.router.add_post("/api/v1/query", platform.query)
    app.router.add_get("/api/v1/label/__name__/values", platform.metric_names)
    app.router.add_get("/units/{unit}/health", inference.unit_health)
    app.router.add_get("/units/{unit}/metrics", inference.unit_metrics)
    if driver.model.objects is not None:
        kube = KubeApi(driver, driver.model.objects, seed)
        app.router.add_get("/api/{path:.*}", kube.handle)
        app.router.add_get("/apis/{path:.*}", kube.handle)
        app.router.add_post("/apis/authentication.k8s.io/v1/selfsubjectreviews", kube.who)
    return app


@contextlib.asynccontextmanager
async def running_emulator(
    config: EmulatorConfig,
    *,
    time_scale: float = 1.0,
    seed: int = 0,
    host: str = "127.0.0.1",
    port: int = 0,
    truth: Path | None = None,
    credentials: tuple[str, str] | None = None,
) -> AsyncIterator[str]:
    """Serve an emulated endpoint while the context lasts; gives the server's base address.

    The truth file is written every two seconds and at the end.
    """
    driver = Driver(lambda start_us: Model(config, seed, start_us), time_scale)
    runner = web.AppRunner(
        build_app(driver, seed, credentials), handler_cancellation=True, access_log=None, shutdown_timeout=_SHUTDOWN_S
    )
    await runner.setup()
    stopping = asyncio.Event()
    writing: asyncio.Task[None] | None = None
    try:
        site = web.TCPSite(runner, host, port, backlog=1024)
        try:
            await site.start()
        except OSError as error:
            reason = error.strerror or error
            raise BadInputError(f"{host}:{port}: cannot listen there ({reason}); --port 0 takes a free one") from error
        bound = runner.addresses[0]
        if truth is not None:
            _write_truth(truth, driver.sync().truth())
            writing = asyncio.create_task(_keep_writing(truth, driver, stopping))
        yield f"http://{bound[0]}:{bound[1]}"
    finally:
        await runner.cleanup()
        stopping.set()
        try:
            if writing is not None:
                await writing
        finally:
            driver.stop()


async def serve(
    config: EmulatorConfig,
    *,
    time_scale: float,
    seed: int,
    host: str,
    port: int,
    truth: Path | None,
    credentials: tuple[str, str] | None,
    listening: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or SIGINT; `listening` is told the base address."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    emulator = running_emulator(
        config, time_scale=time_scale, seed=seed, host=host, port=port, truth=truth, credentials=credentials
    )
    async with emulator as url:
        # What is there now stays for good; a full collection would stop every stream for as long as it takes.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        listening(url)
        await stop.wait()


async def _keep_writing(path: Path, driver: Driver, stopping: asyncio.Event) -> None:
    """Write the truth whenever there is more of it, and a last time at the end; one write at a time."""
    written = 0
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), TRUTH_EVERY_S)
        truth = driver.sync().truth()
        if len(truth) != written:
            await asyncio.to_thread(_write_truth, path, truth)
            written = len(truth)
        if stopping.is_set():
            return


def _write_truth(path: Path, truth: list[TruthRow]) -> None:
    try:
        write_parquet(path, pl.DataFrame([row.as_row() for row in truth], schema=pl.Schema(Truth)))
    except OSError as error:
        raise BadInputError(f"{path}: cannot write the truth file there ({error.strerror})") from error


@lru_cache(maxsize=4)
def _http_date(second: int) -> str:
    return format_datetime(to_datetime(second * 1_000_000), usegmt=True)
