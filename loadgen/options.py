"""A scenario from a file, from flags, or from both: flags win."""

from __future__ import annotations

from typing import Any

import msgspec

from loadgen.scenario import Scenario
from loadgen.scenario_file import build_scenario, load_scenario
from traces.errors import BadInputError

_PLACES = {
    "trace": ("trace", "path"),
    "format": ("trace", "format"),
    "window": ("trace", "window"),
    "target": ("target", "url"),
    "kind": ("target", "kind"),
    "model": ("target", "model"),
    "endpoint_name": ("target", "endpoint_name"),
    "region": ("target", "region"),
    "stream": ("target", "stream"),
    "record_chunks": ("replay", "record_chunks"),
    "seed": ("replay", "seed"),
    "max_in_flight": ("replay", "max_in_flight"),
    "loop": ("replay", "loop"),
    "duration": ("replay", "duration"),
    "warm_up": ("replay", "warm_up"),
    "max_requests": ("guard", "max_requests"),
    "max_rate": ("guard", "max_rate"),
    "max_cost": ("guard", "max_cost"),
    "abort_on": ("guard", "abort_on"),
    "abort_grace": ("guard", "abort_grace"),
    "emulator": ("emulator", "url"),
    "condition": ("run", "condition"),
}


def resolve_scenario(path: str | None, *, collect: bool | None = None, **flags: Any) -> Scenario:
    """Return the scenario in the file at `path` with the flags that are not `None` laid over it.

    Without a file the flags must name a trace and a target. `collect` True needs a [collect] table, or an endpoint's
    name to make one from; False leaves the collector out.
    """
    document: dict[str, Any] = {}
    if path is not None:
        document = msgspec.to_builtins(load_scenario(path))
    given = {name: value for name, value in flags.items() if value is not None}
    for name, value in given.items():
        section, key = _PLACES[name]
        document[section] = {**(document.get(section) or {}), key: value}
    if not document.get("trace"):
        raise BadInputError("nothing to replay: name a scenario file, or --trace FILE and --target URL")
    if path is None and not given.get("target") and not given.get("endpoint_name"):
        raise BadInputError("nowhere to send it: name a scenario file, or --target URL")
    if collect is None and path is None and (document.get("target") or {}).get("kind") == "sagemaker":
        collect = True  # there is no file that could ask for it, and the platform tells
    document["collect"] = _collect_table(document, collect, given)
    document = {key: value for key, value in document.items() if value is not None}
    return build_scenario(document, origin=path or "command line")


def _collect_table(document: dict[str, Any], wanted: bool | None, flags: dict[str, Any]) -> dict[str, Any] | None:
    """Return the [collect] table; flags that name the endpoint hold for who watches it, too."""
    present: dict[str, Any] | None = document.get("collect")
    if wanted is False or (wanted is None and present is None):
        return None
    target = document.get("target") or {}
    at_target = target.get("kind") == "sagemaker"
    if present is not None:
        said = {"endpoint_name": flags.get("endpoint_name"), "region": flags.get("region")}
        said["endpoint_url"] = flags.get("target") if at_target else None
        return present | {key: value for key, value in said.items() if value is not None}
    if not target.get("endpoint_name"):
        raise BadInputError("--collect: which endpoint? add a [collect] table to the scenario, or --endpoint-name NAME")
    emulator = (document.get("emulator") or {}).get("url")
    return {
        "endpoint_name": target["endpoint_name"],
        "region": target.get("region"),
        "endpoint_url": emulator or (target.get("url") if at_target else None),
    }
