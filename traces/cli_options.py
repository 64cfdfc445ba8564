"""The command line's options that declare what a recording's format cannot tell; shared by all commands that read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from traces.readers import LoadedTrace

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--format", "fmt", metavar="FORMAT", help="Name the format instead of finding it by content."),
    click.option("--time-unit", metavar="UNIT", help="Unit of a gateway log's times: s, ms, us, ns, iso or mixed."),
    click.option(
        "--sampling-percent", type=float, metavar="P", help="Share of the real requests that the source kept."
    ),
    click.option("--pattern", metavar="NAME|REGEX", help="Log format of nginx, by name or with named groups."),
    click.option(
        "--rate", "rate_per_s", type=float, metavar="R", help="Requests per second, for conversations without times."
    ),
    click.option("--seed", type=int, metavar="N", help="Seed of what is drawn (--rate, ServeGen); 0 if left out."),
    click.option("--chars-per-token", type=float, metavar="C", help="Estimate lengths that are recorded as text only."),
    click.option("--endpoint-url", metavar="URL", help="S3 endpoint; the standard AWS settings if left out."),
)


def reading_options(command: Command) -> Command:
    """Return the command with the options of reading; it gets them as keywords, to be given to `open_declared`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def open_declared(file: str, *, fmt: str | None, **declared: Any) -> LoadedTrace:
    """Return the trace at `file`, read with the options of `reading_options`."""
    from traces.readers import Options, open_trace

    return open_trace(file, fmt, Options(**declared))
