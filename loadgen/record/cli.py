"""The command `trace record`. Imports only click at the top: the rest is heavy, and must not meet gevent."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from loadgen.record.session import Recording


@click.command(short_help="Record real traffic through a pass-through proxy.")
@click.option("--upstream", metavar="URL", help="Server to pass requests to, such as http://127.0.0.1:8000.")
@click.option("--listen", default="127.0.0.1:8088", show_default=True, metavar="HOST:PORT", help="Where to listen.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="Parquet file.")
@click.option("--duration", metavar="DURATION", help="How long to record.  [default: until Ctrl-C]")
@click.option(
    "--keep-content",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the requests' bodies, prompts included, to this file.  [default: no content is kept]",
)
@click.option("--recover", is_flag=True, help="Close a recording to OUTPUT that was cut off, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def record(
    *,
    upstream: str | None,
    listen: str,
    output: Path,
    duration: str | None,
    keep_content: Path | None,
    recover: bool,
    as_json: bool,
) -> None:
    """Pass OpenAI-compatible traffic to --upstream, and write what passes as a trace.

    Answers stream through untouched and as they come. Of each completion request the arrival, model, tokens (as the
    server reports them; a stream tells only when its client asks with stream_options), status and latency are kept, no
    content and no credentials. Rows are on disk within a second of their answer's end, also after a kill.
    """
    import asyncio

    from loadgen.record import shards
    from loadgen.record.session import Recording, parse_listen, parse_upstream
    from loadgen.record.session import record as recorded
    from traces.errors import BadInputError
    from traces.units import US_PER_S, parse_duration_us

    if recover:
        found = Recording(output=str(output), rows=shards.recover(output))
        _report(found, as_json=as_json)
        return
    if upstream is None:
        raise BadInputError("nothing to pass requests to; name the server with --upstream URL")
    address = parse_listen(listen)
    if not address.is_loopback:
        _say(f"--listen {listen}: others can reach this proxy, and it asks nobody who they are")
    found = asyncio.run(
        recorded(
            parse_upstream(upstream),
            address,
            output,
            content=keep_content,
            duration_s=None if duration is None else parse_duration_us(duration) / US_PER_S,
            say=_say,
        )
    )
    _report(found, as_json=as_json)


def _report(found: Recording, *, as_json: bool) -> None:
    if as_json:
        shown = {
            "output": found.output if found.rows else None,
            "rows": found.rows,
            "statuses": found.statuses,
            "without_usage": found.without_usage,
            "streams_without_usage": found.streams_without_usage,
            "chunks_without_usage": found.chunks_without_usage,
        }
        click.echo(json.dumps({"schema": 1, **shown}))
        return
    rows = found.rows
    _say(f"wrote {rows:,} rows to {found.output}" if rows else "no completion request came by; nothing was written")
    if found.without_usage:
        _say(f"{found.without_usage:,} rows have no token counts: their answers reported no usage")
    if found.streams_without_usage:
        _say(
            f"{found.streams_without_usage:,} of them are streams, of {found.chunks_without_usage:,} chunks together; "
            'clients get usage with "stream_options": {"include_usage": true}'
        )


def _say(line: str) -> None:
    """Write a line of progress; a reader that went away is no reason to stop recording."""
    with contextlib.suppress(OSError):
        click.echo(line, err=True)
