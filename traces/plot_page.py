"""A picture as one HTML file that opens offline, loads nothing, and runs no script but its own."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any, Final

from traces.offline import content_policy, vega_script

_MOUNT: Final = """
vegaEmbed('#picture', JSON.parse(document.getElementById('spec').textContent), {mode: 'vega-lite', ast: true,
  renderer: 'svg', actions: false, defaultStyle: false, loader: {target: null}})
  .catch(error => { document.getElementById('picture').textContent = 'the picture failed: ' + error; });
"""
"""Draws the picture. `ast` makes Vega interpret expressions, so that the page needs no `unsafe-eval`."""

_CSS: Final = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#57606a;--paper:#fff;--line:#d0d7de}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9da7b1;--paper:#0d1117;--line:#30363d}}
body{margin:0 auto;max-width:960px;padding:24px;background:var(--paper);color:var(--ink)}
body{font:15px/1.5 system-ui,sans-serif}
h1{font-size:21px;margin:0 0 12px}#picture{overflow-x:auto}#picture svg text{fill:var(--ink)!important}
table{border-collapse:collapse;margin-top:18px;font-size:14px}
th,td{text-align:left;padding:4px 18px 4px 0;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--soft);font-weight:600;white-space:nowrap}
#vg-tooltip-element{position:absolute;visibility:hidden;padding:6px 8px;background:var(--paper);color:var(--ink);
border:1px solid var(--line);border-radius:4px;font-size:12px}#vg-tooltip-element.visible{visibility:visible}
"""


def page(spec: Mapping[str, Any], title: str, figures: Mapping[str, str]) -> str:
    """Return the page: the picture, and the figures as a table."""
    script = vega_script(_MOUNT)
    shown = {**spec, "background": "transparent"}
    shown.pop("title", None)
    document = json.dumps(shown, allow_nan=False).replace("<", "\\u003c")
    cells = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in figures.items()
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{content_policy(script)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>ramptrace: {html.escape(title)}</title><style>{_CSS}</style></head>"
        f'<body><h1>{html.escape(title)}</h1><div id="picture"></div>'
        "<noscript><p>The picture needs JavaScript; the figures do not.</p></noscript>"
        f'<table>{cells}</table><script type="application/json" id="spec">{document}</script>'
        f"<script>{script}</script></body></html>\n"
    )
