"""The documentation's column tables, made from the schemas: `python -m traces.columns > docs/tables.md`."""

from __future__ import annotations

import inspect

import dataframely as dy
import polars as pl

from traces import schema

_PLACES = {
    schema.Trace: "trace.parquet",
    schema.Request: "requests/*.parquet",
    schema.Observation: "observations/*.parquet",
    schema.Sample: "samples/*.parquet",
    schema.Gap: "gaps/*.parquet",
    schema.Anchor: "analysis/anchors.parquet",
    schema.ScaleOut: "analysis/scale_outs.parquet",
    schema.Phase: "analysis/phases.parquet",
    schema.Truth: "truth.parquet (emulated runs only)",
}


def tables_markdown() -> str:
    """Return a Markdown page with one table per schema: column, type, whether it may be null, meaning."""
    head = [
        "# Tables of a run directory",
        "",
        f"Table version {schema.SCHEMA_VERSION}. Null means *not observed*.",
        "Made from `traces/schema.py` by `python -m traces.columns`.",
        "",
    ]
    return "\n".join(head + [line for kind, place in _PLACES.items() for line in _table(kind, place)])


def _table(kind: type[dy.Schema], place: str) -> list[str]:
    lines = [f"## {kind.__name__}: `{place}`", "", inspect.getdoc(kind) or "", "", "| column | type | null | meaning |"]
    lines.append("|---|---|---|---|")
    types = pl.Schema(kind)
    for name, column in kind.columns().items():
        null = "yes" if column.nullable else "no"
        lines.append(f"| `{name}` | {_type_name(types[name])} | {null} | {column.description or ''} |")
    return [*lines, ""]


def _type_name(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.Enum):
        return " \\| ".join(dtype.categories)
    if isinstance(dtype, pl.Datetime):
        return "timestamp[µs, UTC]"
    if isinstance(dtype, pl.List):
        return "list of int64"
    return {"String": "text", "Boolean": "bool"}.get(str(dtype), str(dtype).lower())


if __name__ == "__main__":
    print(tables_markdown(), end="")
