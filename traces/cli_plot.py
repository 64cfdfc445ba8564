"""`ramptrace trace plot`: a trace's picture as SVG, PNG or HTML."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import click

from traces.cli_options import check_outputs, open_declared, output_options, reading_options
from traces.terminal import print_json

_SUFFIXES = (".svg", ".png", ".html")


@click.command(short_help="Draw a trace as SVG, PNG or HTML.")
@click.argument("file", metavar="FILE")
@reading_options
@output_options("OUT.svg, .png or .html.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plot(file: str, *, output: Path, force: bool, as_json: bool, **declared: Any) -> None:
    """Draw FILE: rate and bursts, requests under way, gaps, index of dispersion, lengths.

    The HTML file is self-contained and opens offline. Needs the extra packages: pip install 'ramptrace[report]'.
    """
    from traces.errors import BadInputError
    from traces.run import write_atomically

    if output.suffix.lower() not in _SUFFIXES:
        raise BadInputError(f"{output}: a picture is written as {', '.join(_SUFFIXES)}; name it so")
    check_outputs([output], [file], force=force)
    if not output.parent.is_dir():
        raise BadInputError(f"{output}: there is no folder {output.parent}; make it, or choose another place")
    try:
        import_module("altair")
        import_module("vl_convert")
    except ImportError:
        raise BadInputError("pictures need the extra packages: pip install 'ramptrace[report]'") from None
    content = _drawn(file, declared, output.suffix.lower())
    try:
        write_atomically(output, content)
    except OSError as error:
        raise BadInputError(f"{output}: cannot be written ({error.strerror}); choose another place with -o") from error
    if as_json:
        print_json({"schema": 1, "output": str(output), "bytes": len(content)})
    else:
        click.echo(f"wrote {output}", err=True)


def _drawn(file: str, declared: dict[str, Any], suffix: str) -> bytes:
    import vl_convert

    from traces.bursts import find_bursts
    from traces.cli_info import figures
    from traces.describe import describe
    from traces.lineage import steps_of
    from traces.plot import CHART_BINS, picture
    from traces.plot_page import page

    loaded = open_declared(file, **declared)
    described = describe(loaded.scan(), CHART_BINS)
    name = file if file.startswith("corpus:") else Path(file).name
    spec = picture(described, find_bursts(loaded.scan()), name)
    if suffix == ".html":
        rows = figures(loaded.account(), described, steps_of(loaded.path))
        return page(spec, name, rows).encode()
    white = {**spec, "background": "white"}
    if suffix == ".svg":
        return vl_convert.vegalite_to_svg(white).encode()
    return vl_convert.vegalite_to_png(white, scale=2)
