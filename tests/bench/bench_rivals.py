"""The same trace, server and core for the replay, AIPerf and GuideLLM: who is how late, and what it costs. By hand.

    RAMPTRACE_AIPERF=…/bin/aiperf RAMPTRACE_GUIDELLM=…/bin/guidellm python -m tests.bench rivals

Each in an environment of its own (`pip install aiperf`). `RAMPTRACE_BENCH_RATES` and `RAMPTRACE_BENCH_LENGTH_S` choose
what is run. Arrivals are those that the server logs. Lag is aligned to each client's own least late request, which
flatters a client that is always late; for the replay, whose start is known, also absolute. See docs/benchmarks.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.bench.truth import INPUT_TOKENS, TOKENS, Observed, lag_ms, observe, ours, poisson_us, write_trace
from traces.run import RunDir

RATES_PER_S = [float(rate) for rate in os.environ.get("RAMPTRACE_BENCH_RATES", "50,200,500,1000").split(",")]
LENGTH_S = float(os.environ.get("RAMPTRACE_BENCH_LENGTH_S", "12"))
PATIENCE_S = float(os.environ.get("RAMPTRACE_BENCH_PATIENCE_S", "200"))
_WORDS = [
    "one",
    "two",
    "six",
    "ten",
    "red",
    "sun",
    "sky",
    "map",
    "pen",
    "cup",
    "hat",
    "box",
    "dog",
    "cat",
    "owl",
    "bee",
]
_MAKE_TOKENIZER = """
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
made = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[]))
made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
made.decoder = decoders.ByteLevel()
found = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="!", pad_token="!")
found.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
found.save_pretrained(sys.argv[1])
"""


def tokenizer(program: Path, folder: Path) -> Path:
    """Write a tokenizer of single bytes with the rival's own libraries: none is fetched, and none is slow."""
    made = folder / "tokenizer"
    python = program.parent / "python"
    subprocess.run([python, "-c", _MAKE_TOKENIZER, made], check=True, capture_output=True)
    return made


def replay(folder: Path, due_us: list[int], _: Path) -> Observed:
    """The replay, inside Locust."""
    write_trace(folder / "trace.parquet", due_us)
    return observe(folder, ours(folder), timeout_s=PATIENCE_S)


def aiperf(folder: Path, due_us: list[int], program: Path) -> Observed:
    """AIPerf's fixed schedule. Its prompts come with the trace, so that it need not make any."""
    texts = [" ".join(_WORDS[(n + k) % len(_WORDS)] for k in range(INPUT_TOKENS)) for n in range(len(due_us))]
    rows = (
        {"timestamp": at / 1e3, "text_input": text, "output_length": TOKENS}
        for at, text in zip(due_us, texts, strict=True)
    )
    (folder / "trace.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    command = [program, "profile", "-m", "m", "--url", "http://127.0.0.1:{port}", "--endpoint-type", "chat"]
    command += ["--streaming", "--tokenizer", tokenizer(program, folder), "--input-file", folder / "trace.jsonl"]
    command += ["--custom-dataset-type", "mooncake_trace", "--fixed-schedule", "--ui", "none"]
    return observe(folder, [*command, "--artifact-dir", folder / "artifacts"], timeout_s=PATIENCE_S)


def guidellm(folder: Path, due_us: list[int], program: Path) -> Observed:
    """GuideLLM's replay profile, each request at its trace time."""
    rows = ({"timestamp": at / 1e6, "input_length": INPUT_TOKENS, "output_length": TOKENS} for at in due_us)
    (folder / "trace.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    data = {"kind": "trace_synthetic", "source": {"kind": "json_file", "path": str(folder / "trace.jsonl")}}
    command = [program, "run", "--backend", "kind=openai_http,target=http://127.0.0.1:{port},model=m"]
    command += ["--profile", "kind=replay,schedule_turn=timestamp", "--data", json.dumps(data)]
    command += ["--tokenizer", f"kind=hf_auto,model={tokenizer(program, folder)}"]
    command += ["--output", f"kind=json,path={folder / 'out.json'}", "--disable-console"]
    return observe(folder, command, timeout_s=PATIENCE_S)


CLIENTS: dict[str, tuple[str | None, Callable[[Path, list[int], Path], Observed]]] = {
    "ramptrace": (None, replay),
    "AIPerf": ("RAMPTRACE_AIPERF", aiperf),
    "GuideLLM": ("RAMPTRACE_GUIDELLM", guidellm),
}


def version_of(program: Path) -> str:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return (said.stdout or said.stderr).strip().splitlines()[-1]


def main() -> None:
    """Print a line per client and rate."""
    programs = {name: Path(os.environ[key]) for name, (key, _) in CLIENTS.items() if key and key in os.environ}
    wanted = os.environ.get("RAMPTRACE_BENCH_WAYS", ",".join(CLIENTS)).split(",")
    if not programs and wanted != ["ramptrace"]:
        print("skipped: name the rivals' commands in RAMPTRACE_AIPERF and RAMPTRACE_GUIDELLM")
        return
    for name, program in programs.items():
        print(f"{name}: {version_of(program)}")
    print(f"{TOKENS} tokens out, {INPUT_TOKENS} in, Poisson, {LENGTH_S:g} s; lag in ms by the server's log")
    heads = ("p50", "p99", "p99.9", "absolute p99", "sent/s", "core", "µs CPU/request", "peak MB")
    print(f"{'req/s':>6} {'client':<10}" + "".join(f"{head:>15}" for head in heads) + "  arrived")
    for rate in RATES_PER_S:
        due_us = poisson_us(rate, LENGTH_S)
        for name in wanted:
            key, run = CLIENTS[name]
            if key is not None and name not in programs:
                continue
            with tempfile.TemporaryDirectory() as path:
                folder = Path(path)
                found = run(folder, due_us, programs.get(name, Path(sys.executable)))
                # a replay counts from its first row
                t0_us = RunDir.open(folder / "run").manifest().t0_us - due_us[0] if name == "ramptrace" else None
            show(rate, name, found, due_us, t0_us)


def show(rate: float, name: str, found: Observed, due_us: list[int], t0_us: int | None) -> None:
    if found.arrivals.height < 2:
        print(f"{rate:6g} {name:<10} nothing arrived (exit code {found.code}): {found.output[-300:]}", flush=True)
        return
    lag = lag_ms(found.arrivals, due_us)
    absolute = f"{lag_ms(found.arrivals, due_us, t0_us)['p99']:15.2f}" if t0_us is not None else f"{'':>15}"
    print(
        f"{rate:6g} {name:<10}"
        + "".join(f"{value:15.2f}" for value in lag.values())
        + absolute
        + f"{found.delivered_per_s:15.0f}{found.core_share:15.0%}{found.cpu_per_request_us:15.0f}{found.peak_mb:15.0f}"
        + f"  {found.arrivals.height} of {len(due_us)}",
        flush=True,
    )


if __name__ == "__main__":
    main()
