"""The report's charts as picture files, SVG and PNG, fit for paper: dark on white."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from analysis.report.parts import Charts
from traces.errors import BadInputError
from traces.run import write_atomically

_INK, _WIDTH_PX = "#1b1f24", 900
_PNG_SCALE: Final = 2


def write_pictures(charts: Charts, folder: Path) -> list[Path]:
    """Write each chart as `<id>.svg` and `<id>.png`, and return the files. Nothing is fetched."""
    try:
        import vl_convert
    except ImportError:
        raise BadInputError("pictures need the extra packages: pip install 'ramptrace[report]'") from None
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for place, spec in charts.items():
            plain = on_paper(spec)
            svg, png = folder / f"{place}.svg", folder / f"{place}.png"
            write_atomically(svg, vl_convert.vegalite_to_svg(plain).encode())
            write_atomically(png, vl_convert.vegalite_to_png(plain, scale=_PNG_SCALE))
            written += [svg, png]
    except OSError as error:
        raise BadInputError(
            f"{folder}: pictures cannot be written there ({error.strerror}); choose another directory"
        ) from error
    return written


def on_paper(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chart of the page as one that stands alone: its own title, width, ink and background."""
    found: dict[str, Any] = json.loads(json.dumps(spec).replace('"currentColor"', f'"{_INK}"'))
    told = found.pop("usermeta", {})
    title, keys = told.get("title"), told.get("keys")
    if keys:
        found["layer"] = [*found["layer"], _legend(keys)]
        found["resolve"] = {"scale": {"color": "independent"}, "legend": {"color": "independent"}}
    found |= {"width": _WIDTH_PX, "title": {"text": title, "anchor": "start", "color": _INK}, "background": "white"}
    found["config"] = found["config"] | {"background": "white", "font": "sans-serif"}
    return found


def _legend(keys: list[list[str]]) -> dict[str, Any]:
    """Return a layer that draws nothing but the key, which on the page is text beside the chart."""
    scale = {"domain": [text for _, text in keys], "range": [colour for colour, _ in keys]}
    legend = {"title": None, "orient": "bottom", "symbolType": "square", "symbolOpacity": 1, "labelLimit": 400}
    return {
        "data": {"values": [{"key": text} for _, text in keys]},
        "mark": {"type": "square", "opacity": 0, "filled": True},
        "encoding": {"color": {"field": "key", "type": "nominal", "scale": scale, "legend": legend}},
    }
