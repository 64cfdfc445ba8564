"""HTML from values: everything that is not already markup is escaped."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, *children: Any, **attributes: Any) -> Markup:
    """Return one element; children that are not Markup are escaped, attributes always (`class_` gives `class`).

    >>> element("p", "a < b", class_="x")
    '<p class="x">a &lt; b</p>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{joined(children)}</{name}>")


def joined(children: Iterable[Any]) -> Markup:
    """Return children side by side, escaped where they are not Markup; None is left out."""
    return Markup("".join(c if isinstance(c, Markup) else html.escape(str(c)) for c in children if c is not None))


def table(head: Sequence[Any], rows: Iterable[Sequence[Any]], numeric: Iterable[int] = ()) -> Markup:
    """Return a table; the columns named in `numeric` are set to the right."""
    right = set(numeric)

    def cells(kind: str, row: Sequence[Any]) -> Markup:
        scope = "col" if kind == "th" else None
        marks = ("n" if i in right else None for i in range(len(row)))
        return element("tr", *(element(kind, c, class_=m, scope=scope) for c, m in zip(row, marks, strict=True)))

    body = element("tbody", *(cells("td", row) for row in rows))
    return _scrolling(element("table", element("thead", cells("th", head)), body))


def grouped_table(
    head: Sequence[Any], groups: Mapping[str, Sequence[Sequence[Any]]], numeric: Iterable[int] = ()
) -> Markup:
    """Return a table whose rows come in named groups; the name, in the first column, stands once per group."""
    right = set(numeric)
    bodies = []
    for name, rows in groups.items():
        lines = []
        for i, row in enumerate(rows):
            first = element("th", name, rowspan=len(rows), scope="rowgroup") if i == 0 else None
            cells = (element("td", c, class_="n" if j in right else None) for j, c in enumerate(row, 1))
            lines.append(element("tr", first, *cells))
        bodies.append(element("tbody", *lines))
    top = element(
        "tr", *(element("th", c, class_="n" if i in right else None, scope="col") for i, c in enumerate(head))
    )
    return _scrolling(element("table", element("thead", top), *bodies))


def _scrolling(table: Markup) -> Markup:
    """Return a table in a box that scrolls where it is too wide, also by keyboard."""
    return element("div", table, class_="scroll", tabindex="0", role="region", aria_label="table")


def json_block(identifier: str, document: Any) -> Markup:
    """Return data as a JSON block that no text inside can close or turn into markup."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json" id="{identifier}">{text}</script>')
