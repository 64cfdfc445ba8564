"""What a container writes while it starts: DJL Serving's lines around vLLM's, as an LMI image prints them."""

from __future__ import annotations

import hashlib

import msgspec

from loadgen.emulator.config import EmulatorConfig, to_us
from loadgen.emulator.startup import Timeline
from traces.clock import to_datetime

_CREATED_SHARE = 0.7


class LogEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One line, when the agent stamped it, and when the log service had it."""

    at_us: int
    ingested_us: int
    event_id: str
    message: str


def container_log(timeline: Timeline, config: EmulatorConfig) -> list[LogEvent]:
    """Return the lines of one start, oldest first."""
    startup = config.startup
    warm_up_s = startup.warm_up_s
    started, loading, loaded, ready = (
        timeline.container_started_us,
        timeline.load_started_us,
        timeline.load_finished_us,
        timeline.ready_us,
    )
    compiled, captured = loaded + to_us(0.45 * warm_up_s), loaded + to_us(0.75 * warm_up_s)
    initialised = loaded + to_us(0.9 * warm_up_s)
    model, total_ms = config.model_name, (ready - started) // 1000
    lines = [
        (started + 300_000, "[INFO ] ModelServer - Starting model server ..."),
        (started + 350_000, "[INFO ] ModelServer - Starting djl-serving: 0.36.0 ..."),
        (started + 900_000, f"[INFO ] ModelManager - Loading model {model} {model} on gpu(0)"),
        (started + 1_000_000, "[INFO ] PyProcess - Start process: 19000 - retry: 0"),
        _engine(loading, "gpu_model_runner.py:3562", f"Starting to load model /opt/ml/model ({model})..."),
        _engine(loaded, "default_loader.py:291", f"Loading weights took {startup.load_s:.2f} seconds"),
        _engine(
            loaded + 400_000,
            "gpu_model_runner.py:3659",
            f"Model loading took {config.startup.model_gb / 1.073741824:.4f} GiB memory "
            f"and {startup.load_s + 0.4:.6f} seconds",
        ),
        _engine(compiled, "monitor.py:34", f"torch.compile takes {0.42 * warm_up_s:.2f} s in total"),
        _engine(
            captured,
            "gpu_model_runner.py:4587",
            f"Graph capturing finished in {0.3 * warm_up_s:.0f} secs, took 0.58 GiB",
        ),
        _engine(
            initialised,
            "core.py:259",
            f"init engine (profile, create kv cache, warmup model) took {0.9 * warm_up_s:.2f} seconds",
        ),
        (ready - 350_000, f"[INFO ] PyProcess - Model [{model}] initialized."),
        (ready - 300_000, f"[INFO ] ModelInfo - {model} model loaded in {total_ms - 300} ms."),
        (ready - 250_000, "[INFO ] ModelServer - Initialize BOTH server with: EpollServerSocketChannel."),
        (ready - 200_000, "[INFO ] ModelServer - BOTH API bind to: http://0.0.0.0:8080"),
    ]
    if config.platform != "sagemaker":
        lines = _vllm_lines(timeline, config)
    lag_us = to_us(config.log_ingestion_lag_s)
    return [
        LogEvent(at_us=at, ingested_us=at + lag_us, event_id=_event_id(timeline.unit_id, k, at), message=message)
        for k, (at, message) in enumerate(sorted(lines, key=lambda line: line[0]))
    ]


def created_us(config: EmulatorConfig, log: list[LogEvent]) -> int:
    """Return when a container's stream comes into being: before its first event can be read, on the way."""
    return log[0].at_us + to_us(_CREATED_SHARE * config.log_ingestion_lag_s)


def _vllm_lines(timeline: Timeline, config: EmulatorConfig) -> list[tuple[int, str]]:
    """Return the lines of vLLM's own image: it says that it loads, fetches the model, and only then reads it."""
    startup, cluster = config.startup, config.cluster
    model, started, ready = config.model_name, timeline.container_started_us, timeline.ready_us
    begin, loaded = timeline.load_started_us, timeline.load_finished_us
    lines = [(started + 300_000, "vLLM API server version 0.14.0")]
    fetched_us = timeline.download_finished_us - timeline.download_started_us
    if cluster.download == "container" and fetched_us > 0:
        begin = timeline.download_started_us
        text = f"Time spent downloading weights for {model}: {fetched_us / 1e6:.6f} seconds"
        lines.append((timeline.download_finished_us, text))
    lines += [
        (begin, f"Starting to load model {model}..."),
        (loaded, f"Loading weights took {startup.load_s:.2f} seconds"),
        (
            ready - 400_000,
            f"init engine (profile, create kv cache, warmup model) took {0.9 * startup.warm_up_s:.2f} seconds",
        ),
        (ready - 50_000, "Application startup complete."),
    ]
    return [(at_us, f"INFO {to_datetime(at_us):%m-%d %H:%M:%S} [engine.py:1] {text}") for at_us, text in lines]


def _engine(at_us: int, place: str, message: str) -> tuple[int, str]:
    stamp = f"{to_datetime(at_us):%m-%d %H:%M:%S}"
    return at_us, f"[INFO ] PyProcess - W-210-model-stdout: (EngineCore_DP0 pid=262) INFO {stamp} [{place}] {message}"


def _event_id(unit_id: str, number: int, at_us: int) -> str:
    """Return an id like CloudWatch's: 56 digits, stable for the event."""
    digest = int.from_bytes(hashlib.sha256(f"{unit_id}:{number}:{at_us}".encode()).digest(), "big")
    return f"{digest % 10**56:056d}"
