"""Figures and pictures of a trace: right, within 80 columns, and safe to open."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import sys
import xml.etree.ElementTree as ET

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ramptrace
from traces.cli_info import _charts
from traces.concurrency import concurrency
from traces.counting import Counts
from traces.describe import describe
from traces.prefix import PrefixCounter
from traces.readers import open_trace, own
from traces.readers.base import TRACE_COLUMNS
from traces.terminal import bars, sparkline
from traces.units import US_PER_S

S = US_PER_S


def table(**columns: list) -> pl.DataFrame:
    rows = len(next(iter(columns.values())))
    return pl.DataFrame({name: columns.get(name, [None] * rows) for name in TRACE_COLUMNS}, schema=TRACE_COLUMNS)


@pytest.fixture
def rich_trace(tmp_path):
    """A file with everything a recording can know, and a name that is markup."""
    draw = random.Random(3)
    rows = 400
    arrivals = sorted(draw.randrange(0, 400 * S) for _ in range(rows))
    frame = table(
        row_id=list(range(rows)),
        arrival_us=[0, *arrivals[1:]],
        input_tokens=[draw.randrange(0, 3000) for _ in range(rows)],
        output_tokens=[draw.randrange(0, 300) for _ in range(rows)],
        session_id=[f"s{draw.randrange(150)}" for _ in range(rows)],
        prefix_blocks=[[0, 1, draw.randrange(2, 50)] for _ in range(rows)],
        block_tokens=[16] * rows,
        source_latency_us=[draw.randrange(0, 9 * S) for _ in range(rows)],
    )
    path = tmp_path / "<b>&t.parquet"
    own.write(path, frame.lazy(), None)
    return path


spans = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 60)), min_size=1, max_size=25).map(sorted)


@given(spans)
def test_concurrency_agrees_with_counting_at_every_instant(rows):
    last = rows[-1][0]
    frame = pl.DataFrame(rows, schema={"arrival_us": pl.Int64, "source_latency_us": pl.Int64}, orient="row")
    found = concurrency(frame, 2 * len(rows), last, 7)
    assert found is not None
    level = [sum(a <= t < a + length for a, length in rows) for t in range(last + 1)]
    # A request of no length is under way at no instant.
    assert found.highest == [max(level[i : i + 7]) for i in range(0, last + 1, 7)]
    assert found.peak == max(level)
    assert found.known_share == 0.5
    if last:
        assert found.mean == pytest.approx(sum(level[:last]) / last)


def test_prefix_reuse_counts_leading_blocks_seen_before():
    counter = PrefixCounter()
    counter.add(
        table(prefix_blocks=[[0, 1, 2], [0, 3, 2], [7, 0], None], block_tokens=[10] * 4, input_tokens=[25, 30, 20, 9])
    )
    counter.add(table(prefix_blocks=[[0, 1, 2]], block_tokens=[10], input_tokens=[25]))
    found = counter.result()
    assert (found.rows, found.blocks, found.distinct_blocks) == (4, 11, 5)
    # Row 2 reuses 0 only (its 3 is new), row 3 starts with a new block, the last reuses all of its 25 tokens.
    assert found.block_share == pytest.approx(4 / 11)
    assert found.token_share == pytest.approx((10 + 25) / (25 + 30 + 20 + 25))
    assert PrefixCounter().result() is None


def test_the_published_reuse_ceiling_holds(shared_traces):
    described = describe(open_trace(str(shared_traces / "mooncake_synthetic_trace.jsonl")).scan())
    assert described.prefix_reuse.block_share == pytest.approx(0.64, abs=0.005)


def test_sessions_and_what_is_not_known(rich_trace):
    described = describe(open_trace(str(rich_trace)).scan())
    frame = pl.read_parquet(rich_trace)
    assert described.sessions.sessions == frame["session_id"].n_unique()
    assert described.sessions.of_several_rows == (frame["session_id"].value_counts()["count"] > 1).sum()
    plain = describe(open_trace("corpus:tiny-step").scan())
    assert (plain.concurrency, plain.prefix_reuse, plain.sessions) == (None, None, None)
    assert plain.dispersion["600s"] is None


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50))
def test_histograms_hold_every_value_once(values):
    counts = Counts()
    counts.add(pl.Series(values, dtype=pl.Int64))
    bins = counts.doubling()
    assert sum(count for *_, count in bins) == len(values)
    for low, high, count in bins:
        assert count == sum(low <= value <= high for value in values)


@given(st.lists(st.floats(0, 1e9), max_size=300), st.integers(1, 80))
def test_sparklines_keep_within_their_width(values, width):
    line = sparkline(values, width)
    assert len(line) == min(width, len(values))
    assert ("█" in line) == any(value > 0 for value in values)


def test_charts_fit_80_columns(rich_trace):
    lines = _charts(describe(open_trace(str(rich_trace)).scan()))
    assert max(map(len, lines)) <= 80
    assert any("under way" in line for line in lines)
    assert bars([]) == []


def call(capsys, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        ramptrace.main(["trace", *map(str, arguments)])
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


def test_info_says_what_the_recording_does_not_know(capsys, rich_trace):
    out = call(capsys, "info", "corpus:tiny-step")[1]
    assert "under way\tunknown: the recording has no latencies" in out
    assert "█" not in out
    document = json.loads(call(capsys, "info", rich_trace, "--json")[1])
    assert document["concurrency"]["known_share"] == 1
    assert document["sessions"]["rows"] == 400


def test_pictures_are_whole_files(capsys, rich_trace, tmp_path):
    svg, png = tmp_path / "t.svg", tmp_path / "t.PNG"
    assert call(capsys, "plot", rich_trace, "-o", svg)[0] == 0
    assert ET.parse(svg).getroot().tag.endswith("svg")
    assert "Under way" in svg.read_text()
    assert call(capsys, "plot", "corpus:tiny-step", "-o", png)[0] == 0
    assert png.read_bytes().startswith(b"\x89PNG")


def test_the_page_runs_no_script_but_its_own_and_loads_nothing(capsys, rich_trace, tmp_path):
    path = tmp_path / "t.html"
    assert call(capsys, "plot", rich_trace, "-o", path)[0] == 0
    text = path.read_text()
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    script = text[text.rindex("<script>") + 8 : text.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    outside = text.replace(script, "")
    assert not re.search(r"https?://|src=|href=", outside)
    assert "<b>" not in outside
    assert "&lt;b&gt;&amp;t.parquet" in outside
    spec = json.loads(re.search(r'id="spec">(.*?)</script>', outside)[1])
    assert "$schema" not in spec


def test_a_missing_extra_and_a_wrong_name_are_one_line(capsys, monkeypatch, tmp_path):
    assert "is written as .svg" in call(capsys, "plot", "corpus:tiny-step", "-o", tmp_path / "t.pdf")[2]
    assert "there is no folder" in call(capsys, "plot", "corpus:tiny-step", "-o", tmp_path / "no" / "t.svg")[2]
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    code, _, err = call(capsys, "plot", "corpus:tiny-step", "-o", tmp_path / "t.svg")
    assert (code, err) == (2, "ramptrace: pictures need the extra packages: pip install 'ramptrace[report]'\n")
