"""Log patterns: each example is told by its own pattern and by no other, and text is never kept."""

import re

import pytest

from loadgen.collect.base import Answer
from loadgen.collect.logs import pattern_row, unit_of
from loadgen.collect.patterns import Pattern, match, patterns, unwrap
from traces.schema import ANCHORS

EVERY = patterns()
NAMES = [pattern.name for pattern in EVERY]


def test_the_file_is_sound() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert {p.engine for p in EVERY} == {"vllm", "sglang", "djl", "tgi", "triton"}
    assert {p.anchor for p in EVERY} <= {*ANCHORS, None}
    for pattern in EVERY:
        assert set(re.compile(pattern.regex).groupindex) <= {"seconds", "millis"}


@pytest.mark.parametrize("pattern", EVERY, ids=NAMES)
def test_each_example_matches_its_own_pattern_and_no_other(pattern: Pattern) -> None:
    message = unwrap(pattern.example)
    assert [p.name for p in EVERY if re.compile(p.regex).match(message)] == [pattern.name]
    found = match(pattern.example)
    assert found is not None
    assert found.pattern == pattern
    assert (found.duration_us is not None) == bool(re.compile(pattern.regex).groupindex)


@pytest.mark.parametrize(
    ("line", "name", "duration_us"),
    [
        # LMI prints its engine's lines inside its own.
        (
            (
                "[INFO ] PyProcess - W-97-model-stdout: (EngineCore_DP0 pid=271) INFO 06-30 10:04:36 [d.py:268] "
                "Loading weights took 28.91 seconds"
            ),
            "vllm-weights-read",
            28_910_000,
        ),
        ("\x1b[1;36mINFO\x1b[0m:     Application startup complete.", "vllm-ready", None),
        ("Model loading took 15.2683 GiB and 29.634113 seconds", "vllm-model-loaded", 29_634_113),
        ("[INFO ] PyModel - model model loaded in 41873 ms.", "djl-model-loaded", 41_873_000),
        ("2026-06-30T10:05:02.017733Z  INFO text_generation_router: Connected", "tgi-ready", None),
        # Before 0.8 vLLM wrote the place without an opening bracket.
        (
            "INFO 12-20 10:04:07 model_runner.py:1072] Starting to load model /opt/ml/model...",
            "vllm-load-started",
            None,
        ),
        ("Initializing a V0 LLM engine (v0.8.5.post1) with config: model='m'", "vllm-engine-v0", None),
        # A worker's line may carry its parent's name too.
        (
            (
                "(EngineCore_0 pid=393) (VllmWorker TP0 pid=394) INFO 08-17 22:48:21 [l.py:262] "
                "Loading weights took 2.63 seconds"
            ),
            "vllm-weights-read",
            2_630_000,
        ),
        (
            "(EngineCore pid=9) INFO 06-02 00:51:40 [m.py:295] Model loading took 7.64 GiB and 32.969258 seconds",
            "vllm-model-loaded",
            32_969_258,
        ),
        # After 0.14 the unit is shorter, and the compilation's share follows.
        (
            "init engine (profile, create kv cache, warmup model) took 17.80 s (compilation: 8.41 s)",
            "vllm-engine-initialised",
            17_800_000,
        ),
        ("I0501 10:50:06.556296 11894 model_lifecycle.cc:459] loading: reid:1", "triton-load-started", None),
        ("I0421 20:17:23.436337 1 m.cc:1239] successfully loaded 'reid' version 1", "triton-load-finished", None),
    ],
)
def test_wrappers_and_colours_are_taken_off(line: str, name: str, duration_us: int | None) -> None:
    found = match(line)
    assert found is not None
    assert (found.pattern.name, found.duration_us) == (name, duration_us)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "INFO 06-30 10:04:07 [logger.py:39] Received request: prompt: 'Application startup complete.'",
        "[INFO ] ModelServer - BOTH API bind to: http://0.0.0.0:8080",
        "Connected to the database",
        "x" * 100_000,
    ],
)
def test_other_lines_date_nothing(line: str) -> None:
    assert match(line) is None


def test_a_row_keeps_no_text() -> None:
    line = "Starting to load model /opt/ml/model-of-a-customer"
    event = {"eventId": "e1", "timestamp": 1_500, "message": line, "logStreamName": "v/i-1"}
    row = pattern_row(event, "r", Answer({}, 1, 2))
    assert row is not None
    assert (row["anchor"], row["unit_id"], row["native_id"]) == ("load_started", "i-1", "e1")
    assert "customer" not in repr(row)


@pytest.mark.parametrize(
    ("stream", "unit"),
    [("v/i-1", "i-1"), ("w/i-1", None), ("v/i-1/c", None), ("v", None), ("v/", None), (None, None)],
)
def test_the_stream_tells_the_instance(stream: str | None, unit: str | None) -> None:
    assert unit_of(stream, "v") == unit
