"""No input makes a reader crash with a traceback, hang, or lose a row without counting it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from unittest import mock

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.reader_samples import ROWS, SAMPLES
from traces.errors import BadInputError
from traces.lint import lint
from traces.readers import READERS, Options, open_trace
from traces.rejects import write_rejects
from traces.schema import Trace

SERVEGEN = b"0,0.05,1.42,Gamma,0.4957,12.03\n600,0.03,0.95,Weibull,1.05,31.9\n1200,0,0,,0,0\n"
OPTIONS = {"gateway": Options(time_unit="mixed"), "conversations": Options(rate_per_s=1, chars_per_token=3)}
PIECES = [
    *(
        b"\n",
        b"\r\n",
        b",",
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b" ",
        b"-",
        b".",
        b"\x00",
        b"\xff",
        b"\xef\xbb\xbf",
    ),
    *(b"null", b"true", b"-1", b"1e400", b"NaN", b"Infinity", b"99999999999999999999999999", b"0.1e-400", b'"\\ud800"'),
    *(
        b"[" * 3000,
        b'{"a":' * 1500,
        b"2024-02-30 25:61:61",
        b"9999-12-31T23:59:59.999999Z",
        b"\xe2\x80\xa8",
        b"{}",
        b"[]",
    ),
]
EDIT = st.tuples(st.floats(0, 1), st.integers(0, 12), st.one_of(st.sampled_from(PIECES), st.binary(max_size=6)))


def sample(name: str) -> bytes:
    if name == "servegen":
        return SERVEGEN
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s"
        SAMPLES[name].write(path, ROWS)
        return path.read_bytes()


CONTENTS = {name: sample(name) for name in READERS}


def edited(content: bytes, edits) -> bytes:
    """Return the content with each edit put in at a place (a share of its length), over some bytes there."""
    for place, over, piece in edits:
        at = round(place * len(content))
        content = content[:at] + piece + content[at + over :]
    return content


def read_whole(path: Path, name: str | None, options: Options) -> None:
    """Read in every way there is, and hold the reader to its account; a clear error is an answer too."""
    refusal = ""
    try:
        loaded = open_trace(str(path), name, options)
        report = loaded.account()
    except BadInputError as error:
        refusal = str(error)
    if refusal:
        assert "\n" not in refusal
        assert refusal.startswith(str(path)) or "--" in refusal
        return
    assert report.rows_read == report.rows_kept + sum(report.dropped.values())
    kept = loaded.scan().collect()
    assert kept.height == report.rows_kept
    assert kept["arrival_us"].is_sorted()
    Trace.validate(kept)
    lint(loaded.scan(), report)
    rejects = path.with_name("rejects")
    assert write_rejects(rejects, loaded.batches()) == sum(report.dropped.values())
    rows = [json.loads(line)["row"] for line in rejects.read_text().removesuffix("\n").split("\n") if line]
    assert set(report.examples.values()) <= set(rows)
    assert not {row - 1 for row in rows} & set(kept["row_id"])
    written = path.with_name("written.parquet")
    assert open_trace(str(path), name, options).write(written) == report
    assert pl.read_parquet(written).equals(kept)


@pytest.mark.parametrize("name", list(READERS))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(edits=st.lists(EDIT, min_size=1, max_size=4), chunk=st.sampled_from([7, 200, 1 << 23]), named=st.booleans())
def test_mutations_of_a_valid_file(name, edits, chunk, named):
    with tempfile.TemporaryDirectory() as folder, mock.patch("traces.readers.lines._CHUNK_BYTES", chunk):
        path = Path(folder) / "chunk-1-trace.csv"
        path.write_bytes(edited(CONTENTS[name], edits))
        read_whole(path, name if named else None, OPTIONS.get(name, Options()) if named else Options())


@pytest.mark.parametrize("name", list(READERS))
@settings(max_examples=10, deadline=None)
@given(other=st.sampled_from(list(READERS)))
def test_a_file_of_another_format_under_this_name(name, other):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        path.write_bytes(CONTENTS[other])
        read_whole(path, name, OPTIONS.get(name, Options()))


@settings(max_examples=60, deadline=None)
@given(st.one_of(st.binary(max_size=300), st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join)))
def test_anything_at_all(content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        path.write_bytes(content)
        read_whole(path, None, Options())
