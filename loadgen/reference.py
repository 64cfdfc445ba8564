"""The documentation's page of the scenario file, made from its structs: `python -m loadgen.reference`."""

from __future__ import annotations

import inspect
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from loadgen.scenario import Scenario

_HEAD = """\
# The scenario file

One TOML file says what to replay, against what, and what to watch meanwhile. Only `[trace]` and `[target]` are needed.
Unknown keys are errors. Lengths of time are written `250ms`, `90s`, `10m`, `1h30m`; flags of
`ramptrace replay` win over the file. Made from `loadgen/scenario.py` by `python -m loadgen.reference`.
"""


def scenario_markdown() -> str:
    """Return a Markdown page with one section per table of the scenario file: its keys, types and defaults."""
    lines = [_HEAD, *_section("", Scenario)]
    return "\n".join(lines).rstrip() + "\n"


def _section(path: str, kind: type[msgspec.Struct]) -> list[str]:
    nested: list[str] = []
    rows = []
    hints = get_type_hints(kind, include_extras=False)
    for field in msgspec.structs.fields(kind):
        table = _struct_in(hints[field.name])
        name = f"{path}.{field.encode_name}" if path else field.encode_name
        if table is None:
            rows.append(f"| `{field.encode_name}` | {_type_text(hints[field.name])} | {_default_text(field)} |")
        else:
            nested += _section(name, table)
    title = f"## `[{path}]`" if path else "## At the top"
    table_lines = ["| key | type | default |", "|---|---|---|", *rows, ""] if rows else []
    return [title, "", inspect.getdoc(kind) or "", "", *table_lines, *nested]


def _struct_in(hint: Any) -> type[msgspec.Struct] | None:
    candidates = (hint, *get_args(hint))
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, msgspec.Struct)), None)


def _type_text(hint: Any) -> str:
    arguments = [argument for argument in get_args(hint) if argument is not type(None)]
    if arguments and all(isinstance(argument, str | int) for argument in arguments):
        return ", ".join(f"`{argument}`" for argument in arguments)
    if isinstance(hint, type) and not arguments:
        return {"str": "text", "int": "whole number", "float": "number", "bool": "true or false"}.get(
            hint.__name__, hint.__name__
        )
    if get_origin(hint) is tuple:
        return f"list of {_type_text(arguments[0])}"
    return " or ".join(_type_text(argument) for argument in arguments if not isinstance(argument, msgspec.Meta))


def _default_text(field: msgspec.structs.FieldInfo) -> str:
    if field.default is not msgspec.NODEFAULT:
        return "none" if field.default is None else f"`{msgspec.json.encode(field.default).decode()}`"
    if field.default_factory is not msgspec.NODEFAULT:
        return f"`{msgspec.json.encode(field.default_factory()).decode()}`"
    return "needed"


if __name__ == "__main__":
    print(scenario_markdown(), end="")
