"""Readers of recorded traffic: `open_trace` finds the format by content and returns a `LoadedTrace`.

One module per format; each makes a `traces.readers.base.Format`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from traces.errors import BadInputError, did_you_mean, first_line
from traces.readers import (
    alb,
    azure,
    bailian,
    burstgpt,
    conversations,
    gateway,
    guidellm,
    helicone,
    langfuse,
    mooncake,
    nginx,
    otel,
    own,
    ragpulse,
    sagemaker,
    servegen,
    simulators,
)
from traces.readers.base import FLAGS, NO_OPTIONS, Format, ImportReport, Options
from traces.readers.head import Head, looks_like
from traces.readers.lines import BOM, read_head
from traces.readers.loaded import LoadedTrace
from traces.readers.locate import CORPUS_PREFIX, Located, locate

__all__ = ["CORPUS_PREFIX", "READERS", "ImportReport", "LoadedTrace", "Options", "open_trace"]

READERS: Final[dict[str, Format]] = {
    reader.name: reader
    for reader in (
        azure.FORMAT,
        burstgpt.FORMAT,
        mooncake.FORMAT,
        bailian.FORMAT,
        ragpulse.FORMAT,
        servegen.FORMAT,
        simulators.VIDUR,
        simulators.SPLITWISE,
        guidellm.FORMAT,
        otel.FORMAT,
        sagemaker.FORMAT,
        alb.FORMAT,
        nginx.FORMAT,
        gateway.FORMAT,
        langfuse.FORMAT,
        helicone.FORMAT,
        conversations.FORMAT,
        own.FORMAT,
    )
}
_LFS_STUB: Final = b"version https://git-lfs.github.com/spec/v1"
_COMPANIONS: Final = tuple(reader.companions for reader in READERS.values() if reader.companions)


def open_trace(source: str, fmt: str | None = None, options: Options = NO_OPTIONS) -> LoadedTrace:
    """Return the trace at `source`.

    `source` is a path (also of a `.gz` or `.zst` file), a folder of files of one format, `s3://BUCKET/KEY` or a prefix,
    or `corpus:NAME` for a bundled trace. The format is found by content unless `fmt` names it. `options` declare what
    the format cannot tell. Raises `BadInputError` for what is not a readable trace.
    """
    if fmt is not None and fmt not in READERS:
        raise BadInputError(f'no format "{fmt}"{did_you_mean(fmt, list(READERS))}; known formats: {", ".join(READERS)}')
    _check_options(options)
    located = locate(source, options, _COMPANIONS)
    heads = [Head(path, _head_of(path, source, located)) for path in located.paths]
    marked = heads[0].content
    for head in heads:
        head.content = head.content.removeprefix(BOM)
    reader = READERS[fmt] if fmt else _detect(source, heads[0])
    _refuse_options(reader, options)
    for head in heads:
        try:
            reader.refuse_other(head.path, head, options)
        except BadInputError as error:
            if len(heads) == 1:
                raise
            raise BadInputError(f"{error}; the files of a folder are read as one {reader.name} trace") from error
    return LoadedTrace(source, located, reader, marked, options)


def _head_of(path: Path, source: str, located: Located) -> bytes:
    name = source if len(located.paths) == 1 else str(path)
    try:
        head = read_head(path)
    except (OSError, EOFError, pl.exceptions.PolarsError) as error:
        cause = first_line(error)
        raise BadInputError(f"{name}: cannot be read ({cause}); check its permissions and that it is whole") from error
    if not head.removeprefix(BOM).strip():
        raise BadInputError(f"{name}: the file is empty; expected a trace, fetch it again")
    if head.startswith(_LFS_STUB):
        raise BadInputError(
            f"{name}: a Git LFS stub, not the data it stands for; run `git lfs pull` there, or download the file itself"
        )
    return head


def _detect(source: str, head: Head) -> Format:
    found = [reader for reader in READERS.values() if reader.sniff(head)]
    if len(found) == 1:
        return found[0]
    if found:
        names = " and ".join(reader.name for reader in found)
        meanings = "; ".join(f"{reader.name}: {reader.times(NO_OPTIONS)}" for reader in found)
        raise BadInputError(f"{source}: may be {names} ({meanings}); say which with --format")
    raise BadInputError(
        f"{source}: not a known trace format ({looks_like(head.content)}). Known formats are "
        f"{'; '.join(f'{reader.name}: {reader.expected}' for reader in READERS.values())}. "
        f"If it is one of them, name it with --format"
    )


def _check_options(options: Options) -> None:
    if options.time_unit is not None and options.time_unit not in gateway.TIME_UNITS:
        units = ", ".join(gateway.TIME_UNITS)
        raise BadInputError(f'no time unit "{options.time_unit}"; known units: {units}')
    if options.sampling_percent is not None and not 0 < options.sampling_percent <= 100:
        raise BadInputError(f"--sampling-percent {options.sampling_percent:g}: expected above 0, and at most 100")
    for flag, value in (("--rate", options.rate_per_s), ("--chars-per-token", options.chars_per_token)):
        if value is not None and not 0 < value < 1e6:
            raise BadInputError(f"{flag} {value:g}: expected a number above 0 and below a million")


def _refuse_options(reader: Format, options: Options) -> None:
    for name, flag in FLAGS.items():
        if getattr(options, name) is not None and name not in reader.options:
            takers = ", ".join(each.name for each in READERS.values() if name in each.options)
            raise BadInputError(f"{flag} means nothing for {reader.name} traces; it is for: {takers}")
