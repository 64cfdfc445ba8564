"""The command line's options that declare what a recording's format cannot tell; shared by all commands that read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
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
    click.option("--chars-per-token", type=float, metavar="C", help="Estimate lengths that are recorded as text only."),
    click.option("--endpoint-url", metavar="URL", help="S3 endpoint; the standard AWS settings if left out."),
)


def declaring_options(command: Command) -> Command:
    """Return the command with the options of `reading_options`, for one that has a --seed of its own."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def reading_options(command: Command) -> Command:
    """Return the command with the options of reading; it gets them as keywords, to be given to `open_declared`."""
    seed = click.option(
        "--seed", type=int, metavar="N", help="Seed of what is drawn (--rate, ServeGen); 0 if left out."
    )
    return declaring_options(seed(command))


def output_options(text: str, *, required: bool = True) -> Callable[[Command], Command]:
    """Return the decorator that adds -o (described by `text`) and --force; see `check_outputs`."""

    def decorate(command: Command) -> Command:
        path = click.Path(path_type=Path, dir_okay=False)
        force = click.option("-f", "--force", is_flag=True, help="Replace a file that is there.")
        return click.option("-o", "--output", type=path, required=required, help=text)(force(command))

    return decorate


def check_outputs(outputs: Iterable[Path | None], sources: Iterable[str | Path] = (), *, force: bool) -> None:
    """Raise `BadInputError` when an output is one of the files being read, or is there and not to be replaced.

    What is no regular file (/dev/stdout, say) is left to whoever writes it.
    """
    from traces.errors import BadInputError

    read = [Path(source) for source in sources]
    for output in outputs:
        if output is None or not output.is_file():
            continue
        if any(source.exists() and output.samefile(source) for source in read):
            raise BadInputError(f"{output}: that is a file being read; name another to write to")
        if not force:
            raise BadInputError(f"{output}: is there already; name another file, or replace it with --force")


def open_declared(file: str, *, fmt: str | None, **declared: Any) -> LoadedTrace:
    """Return the trace at `file`, read with the options of `reading_options`."""
    from traces.readers import Options, open_trace

    return open_trace(file, fmt, Options(**declared))
