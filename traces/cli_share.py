"""`ramptrace trace export` and `trace anonymise`: traces for other tools and other people."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from traces.cli_options import check_outputs, open_declared, output_options, reading_options
from traces.terminal import print_json, print_table

_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_FORMATS = ("mooncake", "azure", "guidellm", "aiperf", "parquet")


@click.command(short_help="Write a trace in another tool's format.")
@click.argument("file", metavar="FILE")
@reading_options
@click.option("--to", type=click.Choice(_FORMATS), required=True, help="Format to write.")
@click.option("--drop-incomplete", is_flag=True, help="Leave out rows that lack what the format needs.")
@output_options("File to write.")
@_json
def export(
    file: str, *, to: str, drop_incomplete: bool, output: Path, force: bool, as_json: bool, **declared: Any
) -> None:
    """Write FILE as --to: what it can carry reads back equal, and what it cannot is counted.

    What each format carries is in docs/traces-shaping.md.
    """
    import msgspec

    from traces import shaping
    from traces.export import export as write
    from traces.lineage import metadata

    check_outputs([output], [file], force=force)
    shaped = shaping.load(open_declared(file, **declared))
    report = write(
        shaped.frame,
        output,
        to,
        origin_us=shaped.origin_us,
        drop_incomplete=drop_incomplete,
        lineage=metadata(shaped.steps),
        sampling_percent=shaped.sampling_percent,
    )
    if as_json:
        print_json({"schema": 1, "output": str(output), "format": to, **msgspec.to_builtins(report)})
        return
    click.echo(f"wrote {report.rows:,} rows to {output}", err=True)
    for column, count in report.dropped.items():
        click.echo(f"left out: {count:,} rows without {column}", err=True)
    for column, count in report.lost.items():
        click.echo(f"not carried by {to}: {column} of {count:,} rows", err=True)
    for column, count in report.filled.items():
        click.echo(f"written as 0 for want of a value: {column} of {count:,} rows", err=True)
    if report.invented_date:
        click.echo("the trace has no date; its times were written as from 2024-01-01 on", err=True)
    if report.hint:
        click.echo(f"no row has prefix blocks; read it back with {report.hint}", err=True)


@click.command(short_help="Take out of a trace what could tell whose it is.")
@click.argument("file", metavar="FILE")
@reading_options
@click.option(
    "--identifiers",
    type=click.Choice(["pseudonymise", "drop"]),
    default="pseudonymise",
    show_default=True,
    help="What becomes of session and model names.",
)
@click.option("--time", "grid", default="keep", show_default=True, metavar="keep|GRID", help="Coarsen times, as to 1s.")
@click.option("--keep-date", is_flag=True, help="Keep the instant of the first arrival.")
@click.option(
    "--salt-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Use this salt, made if missing: traces hashed with the same salt match. Keep it secret.",
)
@output_options("Parquet file.")
@_json
def anonymise(
    file: str,
    *,
    identifiers: str,
    grid: str,
    keep_date: bool,
    salt_file: Path | None,
    output: Path,
    force: bool,
    as_json: bool,
    **declared: Any,
) -> None:
    """Write FILE without identities, and report what was removed.

    Session and model names and prefix blocks become hashes keyed with a fresh secret salt, which is forgotten unless
    --salt-file keeps it; references to content, the date and the file's history are dropped. Lengths stay: who knows
    the lengths of a conversation can recognise it.
    """
    import msgspec

    from traces.anonymise import Identifiers, Removed
    from traces.anonymise import anonymise as anonymised
    from traces.errors import BadInputError
    from traces.lineage import LineageStep, metadata
    from traces.readers import own
    from traces.units import parse_duration_us

    check_outputs([output], [file, *([] if salt_file is None else [salt_file])], force=force)
    grid_us = None if grid == "keep" else parse_duration_us(grid)
    if grid_us == 0:
        raise BadInputError("--time 0: expected keep, or a grid above 0 such as 1s")
    loaded = open_declared(file, **declared)
    choice = msgspec.convert(identifiers, Identifiers)
    rows, removed = anonymised(loaded.scan(), _salt(salt_file), identifiers=choice, grid_us=grid_us)
    origin_us = loaded.origin_us if keep_date else None
    if not keep_date and loaded.origin_us is not None:
        removed.append(Removed(column="first arrival", done="dropped", values=1))
    if origin_us is not None and grid_us is not None:
        origin_us -= origin_us % grid_us
    made = LineageStep(name="anonymise", parameters={"identifiers": identifiers, "time": grid, "date": keep_date})
    own.write(output, rows.lazy(), origin_us, metadata([made]), sampling_percent=loaded.sampling_percent)
    if as_json:
        print_json({"schema": 1, "output": str(output), "rows": rows.height, "removed": msgspec.to_builtins(removed)})
        return
    print_table(str(output), ("column", "done", "values"), [(r.column, r.done, f"{r.values:,}") for r in removed])


def _salt(path: Path | None) -> bytes:
    """Return a fresh salt, or the one in the file; a file that is not there is made, readable by its owner only."""
    import secrets

    from traces.anonymise import SALT_BYTES
    from traces.errors import BadInputError

    fresh = secrets.token_bytes(SALT_BYTES)
    if path is None:
        return fresh
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _stored_salt(path)
    except OSError as error:
        raise BadInputError(f"{path}: the salt cannot be written ({error.strerror}); choose another place") from error
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{fresh.hex()}\n")
    return fresh


def _stored_salt(path: Path) -> bytes:
    from traces.anonymise import SALT_BYTES
    from traces.errors import BadInputError

    try:
        salt = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        salt = b""
    if len(salt) != SALT_BYTES:
        # The content is not shown: it may be a secret of another kind.
        raise BadInputError(
            f"{path}: not a salt; expected {SALT_BYTES} bytes in hexadecimal, name a file yet to be made"
        )
    return salt
