"""Reading a scenario, and refusing one that cannot be meant: values that do not fit, or that contradict each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from loadgen.abort import parse_rule
from loadgen.scenario import Scenario
from loadgen.strict_toml import convert_strictly, read_toml
from traces.errors import BadInputError
from traces.thresholds import parse_threshold
from traces.units import US_PER_MS

_SPEAKS = {"openai": "chat", "completions": "completions", "tgi": "tgi", "triton": "triton", "http": "template"}
"""The built-in kinds that are posted to at an address, and what they speak."""


def load_scenario(path: str | Path) -> Scenario:
    """Read a scenario file; relative paths in it are taken from the file's folder."""
    file = Path(path)
    document = read_toml(file, "write one or use --trace FILE --target URL")
    scenario = build_scenario(document, origin=str(file))
    trace, prompts, target = scenario.trace, scenario.prompts, scenario.target
    if not trace.path.startswith(("corpus:", "s3://")):
        trace = msgspec.structs.replace(trace, path=str(file.parent / trace.path))
    prompts = msgspec.structs.replace(
        prompts,
        tokenizer=prompts.tokenizer and str(file.parent / prompts.tokenizer),
        payloads=prompts.payloads and str(file.parent / prompts.payloads),
    )
    target = msgspec.structs.replace(
        target,
        api_key_file=target.api_key_file and str(file.parent / target.api_key_file),
        header_file={name: str(file.parent / path) for name, path in target.header_file.items()},
    )
    gate = scenario.gate
    if gate.baseline is not None and not gate.baseline.startswith("s3://"):
        gate = msgspec.structs.replace(gate, baseline=str(file.parent / gate.baseline))
    return msgspec.structs.replace(scenario, trace=trace, prompts=prompts, target=target, gate=gate)


def build_scenario(document: dict[str, Any], *, origin: str) -> Scenario:
    """Return the scenario that a parsed document states; `origin` names it in errors."""
    scenario = convert_strictly(document, Scenario, origin=origin)
    _check_values(scenario, origin)
    return scenario


def _check_values(scenario: Scenario, origin: str) -> None:
    """Read every duration once, so that a bad one is an error now and not in the middle of a run."""
    sections = {
        "trace": scenario.trace,
        "target": scenario.target,
        "replay": scenario.replay,
        "verdict": scenario.verdict,
        "guard": scenario.guard,
        "collect": scenario.collect,
        "collect.probe": scenario.collect and scenario.collect.probe,
    }
    for name, section in sections.items():
        for attribute in dir(section):
            if section is not None and attribute.endswith("_us"):
                try:
                    value = getattr(section, attribute)
                except BadInputError as error:
                    raise BadInputError(f"{origin}: [{name}] {attribute.removesuffix('_us')}: {error}") from None
                if (
                    attribute in {"flush_us", "poll_us", "period_us", "metrics_poll_us", "window_us"}
                    and name != "trace"
                    and value < US_PER_MS
                ):
                    raise BadInputError(f"{origin}: [{name}] {attribute.removesuffix('_us')} must be at least 1ms")
    if scenario.collect is not None and not scenario.collect.label:
        raise BadInputError(f"{origin}: [collect] names nothing to watch; give endpoint_name or a platform's table")
    _check_target(scenario, origin)
    if scenario.replay.duration_us == 0:
        raise BadInputError(f"{origin}: [replay] duration must be above 0")
    _check_each(f"{origin}: [guard] abort_on", scenario.guard.abort_on, parse_rule)
    _check_each(f"{origin}: [gate] thresholds", scenario.gate.thresholds, parse_threshold)
    if scenario.replay.max_in_flight < 0:
        raise BadInputError(f"{origin}: [replay] max_in_flight must be 0 (no cap) or more")


def _check_each(where: str, texts: Sequence[str], parse: Callable[[str], object]) -> None:
    for text in texts:
        try:
            parse(text)
        except BadInputError as error:
            raise BadInputError(f"{where}: {error}") from None


def _check_target(scenario: Scenario, origin: str) -> None:
    """Refuse what a kind of endpoint cannot do. Kinds that other distributions install check themselves."""
    target, prompts = scenario.target, scenario.prompts
    speaks = target.dialect if target.kind == "sagemaker" else _SPEAKS.get(target.kind)
    if target.kind == "sagemaker" and not target.endpoint_name:
        raise BadInputError(f"{origin}: [target] kind sagemaker needs endpoint_name")
    if target.kind == "sagemaker" and "?" in (target.url or ""):
        raise BadInputError(f"{origin}: [target] url: a sagemaker address has no query; give https://HOST alone")
    if target.kind in _SPEAKS and not target.url:
        raise BadInputError(f"{origin}: [target] kind {target.kind} needs url")
    if target.kind == "triton" and not target.model:
        raise BadInputError(f"{origin}: [target] kind triton needs model: it is part of the address")
    if target.body is not None and speaks not in {None, "template"}:
        raise BadInputError(f"{origin}: [target] body is a template for kind http; {target.kind} has a body of its own")
    if (target.min_tokens or target.ignore_eos) and speaks in {"tgi", "template"}:
        raise BadInputError(
            f"{origin}: [target] min_tokens and ignore_eos are unknown to {speaks}; say it in "
            f"{'body' if speaks == 'template' else 'extra_body'}, where the server has a way"
        )
    if prompts.image_size and speaks not in {None, "chat", "template"}:
        raise BadInputError(f"{origin}: [prompts] image_size: {speaks} carries no images; leave it out")
    if prompts.overhead_tokens < 0:
        raise BadInputError(f"{origin}: [prompts] overhead_tokens must be 0 or more")
