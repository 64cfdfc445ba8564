"""The kinds of endpoint: the built-in ones, and those that other distributions install.

A third-party kind is an entry point in the group `ramptrace.endpoints`: its name is the kind, its object a callable
that takes the scenario's `TargetSection` and the run's `Prompts` and returns a `loadgen.endpoints.base.Endpoint`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points

from loadgen.endpoints.base import Endpoint
from loadgen.endpoints.chat import ChatDialect, CompletionsDialect
from loadgen.endpoints.dialect import Dialect
from loadgen.endpoints.http import HttpEndpoint
from loadgen.endpoints.template import TemplateDialect
from loadgen.endpoints.tgi import TgiDialect
from loadgen.endpoints.triton import TritonDialect
from loadgen.prompts import Prompts
from loadgen.scenario import TargetSection
from traces.errors import BadInputError, did_you_mean

GROUP = "ramptrace.endpoints"

_OVER_HTTP: dict[str, Callable[[TargetSection, Prompts], Dialect]] = {
    "openai": ChatDialect,
    "completions": CompletionsDialect,
    "tgi": TgiDialect,
    "triton": TritonDialect,
    "http": TemplateDialect,
}
_OVER_SAGEMAKER: dict[str, Callable[[TargetSection, Prompts], Dialect]] = {
    "chat": ChatDialect,
    "completions": CompletionsDialect,
    "tgi": lambda section, prompts: TgiDialect(section, prompts, in_body=True),
    "template": TemplateDialect,
}


def make_endpoint(section: TargetSection, prompts: Prompts) -> Endpoint:
    """Return the adapter for the kind of endpoint that a scenario names. Raises `BadInputError` for an unknown one."""
    if section.kind == "sagemaker":
        from loadgen.endpoints.sagemaker import SageMakerEndpoint

        return SageMakerEndpoint(section, _OVER_SAGEMAKER[section.dialect](section, prompts))
    if section.kind in _OVER_HTTP:
        return HttpEndpoint(section, _OVER_HTTP[section.kind](section, prompts))
    installed = {entry.name: entry for entry in entry_points(group=GROUP)}
    if section.kind in installed:
        return _load(installed[section.kind], section, prompts)
    known = [*_OVER_HTTP, "sagemaker", *installed]
    raise BadInputError(
        f'target.kind: unknown kind "{section.kind}"{did_you_mean(section.kind, known)}; known: {", ".join(known)}'
    )


def _load(entry: EntryPoint, section: TargetSection, prompts: Prompts) -> Endpoint:
    try:
        make = entry.load()
    except Exception as error:  # whatever a foreign module raises when it is imported
        raise BadInputError(
            f'target.kind: the installed kind "{entry.name}" cannot be loaded from {entry.value} ({error})'
        ) from error
    endpoint: Endpoint = make(section, prompts)
    return endpoint
