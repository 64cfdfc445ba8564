"""What commands print: one JSON object, tables, and charts of block characters."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_BAR: Final = "█"


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON object on one line."""
    click.echo(json.dumps(document, ensure_ascii=False))


def print_pairs(title: str, pairs: Mapping[str, str]) -> None:
    """Print names and values as a table without heads."""
    print_table(title, ("", ""), list(pairs.items()))


def print_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: drawn on a terminal, tab-separated when piped."""
    if not sys.stdout.isatty():
        lines = ["\t".join(row) for row in ([heads, *rows] if any(heads) else rows)]
        click.echo("\n".join(lines))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(*heads, title=escape(title), title_justify="left", show_header=any(heads), box=None)
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    Console().print(table)


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """Return values as one line of at most `width` block characters; neighbours share a character by their maximum.

    The tallest block is the largest value, a space is zero.

    >>> sparkline([0, 1, 2, 8])
    ' ▁▂█'
    >>> sparkline([1, 5, 2, 2], width=2)
    '█▃'
    """
    width = min(width, len(values))
    cells = [max(values[i * len(values) // width : (i + 1) * len(values) // width]) for i in range(width)]
    top = max(cells, default=0)
    return "".join(" " if cell <= 0 else _BLOCKS[max(0, round(cell / top * len(_BLOCKS)) - 1)] for cell in cells)


def bars(rows: Sequence[tuple[str, int]], width: int = 40) -> list[str]:
    """Return labelled bars with their counts, the longest `width` characters.

    >>> bars([("1..2", 4), ("3..4", 1)], width=4)
    ['1..2  ████  4', '3..4  █     1']
    """
    if not rows:
        return []
    top = max(count for _, count in rows) or 1
    label = max(len(name) for name, _ in rows)
    return [
        f"{name:>{label}}  {_BAR * (max(1, round(count / top * width)) if count else 0):<{width}}  {count:,}"
        for name, count in rows
    ]
