"""What readers share: cutting JSON into values, putting rows in order, reading ahead, times in columns."""

from __future__ import annotations

import itertools
import json
import threading
import time
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.errors import BadInputError
from traces.readers import lines, open_trace
from traces.readers.ahead import ahead, made_ahead
from traces.readers.json_split import split_json, visible_keys
from traces.readers.reorder import in_order
from traces.readers.stamps import stamps_us

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def pieces(text: bytes, size: int) -> list[bytes]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@given(st.lists(json_values, max_size=5), st.sampled_from([None, 1]), st.integers(1, 9), st.booleans())
def test_an_array_is_cut_into_its_elements_wherever_pieces_end(values, indent, size, unicode):
    text = json.dumps(values, indent=indent, ensure_ascii=not unicode).encode("utf-8", "surrogatepass")
    assert [json.loads(cut) for cut, _ in split_json(pieces(text, size))] == values


@given(st.lists(st.dictionaries(st.text(max_size=4), json_values, max_size=3), max_size=4), st.integers(1, 9))
def test_objects_over_several_lines_are_cut_apart(values, size):
    text = "\n".join(json.dumps(value, indent=1) for value in values).encode()
    assert [json.loads(cut) for cut, _ in split_json(pieces(text, size))] == values


@given(st.dictionaries(st.text(max_size=4), json_values, min_size=1, max_size=4))
def test_the_keys_of_an_object_are_seen_without_its_end(value):
    text = json.dumps(value).encode()
    assert visible_keys(text[:-1]) == set(value)


def test_a_value_without_an_end_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setattr("traces.readers.json_split.MAX_VALUE_BYTES", 100_000)
    monkeypatch.setattr("traces.readers.lines._CHUNK_BYTES", 50_000)
    path = tmp_path / "t.json"
    path.write_text('[{"id": "x", "conversations": []}, {"id": "' + "y" * 500_000)
    with pytest.raises(BadInputError, match=r"t\.json: a JSON value does not end"):
        open_trace(str(path), "conversations").account()


def test_a_torn_array_loses_no_row_uncounted(tmp_path):
    path = tmp_path / "t.json"
    row = {"type": "SPAN", "trace_id": "t", "start_time": "2026-04-29 00:03:18"}
    good = {**row, "type": "GENERATION", "end_time": None}
    path.write_text(json.dumps([row, good, good])[:-20])
    report = open_trace(str(path)).account()
    assert report.dropped == {"not_generation": 1, "truncated_last_line": 1}


@given(st.lists(st.integers(0, 50), max_size=40), st.lists(st.integers(0, 9), max_size=8), st.integers(1, 12))
def test_rows_are_put_in_order_ties_in_source_order(arrivals, sizes, least):
    frame = pl.DataFrame({"row_id": range(len(arrivals)), "arrival_us": arrivals}, schema=["row_id", "arrival_us"])
    frame = frame.cast(pl.Int64)
    latest = frame["arrival_us"].cum_max()
    lateness = int((latest - frame["arrival_us"]).max() or 0)
    cuts = [sum(sizes[:n]) for n in range(len(sizes) + 1)]
    frames = [frame[at : at + size] for at, size in zip(cuts, sizes, strict=False)] + [frame[cuts[-1] :]]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("traces.readers.reorder._LEAST_ROWS", least)
        got = pl.concat([frame[:0], *in_order(iter(frames), lateness)])
    assert got.equals(frame.sort("arrival_us", maintain_order=True))


def test_nearly_ordered_rows_are_held_back_for_a_while_only(monkeypatch):
    monkeypatch.setattr("traces.readers.reorder._LEAST_ROWS", 100)
    frames = (pl.DataFrame({"arrival_us": [n * 10 + 5, n * 10]}) for n in range(10_000))
    taken = in_order(frames, 5)
    heights = [frame.height for frame in taken]
    assert sum(heights) == 20_000
    assert max(heights) < 300


def test_reading_ahead_keeps_order_raises_in_place_and_ends_with_its_context():
    def items():
        yield from range(5)
        raise ValueError("at the end")

    with ahead(items()) as got:
        assert [next(got) for _ in range(5)] == list(range(5))
        with pytest.raises(ValueError, match="at the end"):
            next(got)

    def endless():
        n = 0
        while True:
            yield n
            n += 1

    before = threading.active_count()
    with ahead(endless()) as got:
        assert next(got) == 0
    assert threading.active_count() == before


@given(
    st.lists(
        st.tuples(
            st.integers(0, 4_000_000_000_000_000),
            st.sampled_from(
                ["%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S.%f0", "%Y-%m-%d %H:%M:%S.%f+00:00", "%Y-%m-%d %H:%M:%S.%f7"]
            ),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_stamps_of_any_mixture_are_exact(stamps):
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    texts = [(epoch + timedelta(microseconds=us)).strftime(form) for us, form in stamps]
    assert stamps_us(pl.Series(texts)).to_list() == [us for us, _ in stamps]


def test_what_is_made_ahead_comes_in_order_and_an_error_at_its_place():
    def maker(number):
        def make():
            if number == 30:
                raise BadInputError("the thirtieth")
            time.sleep(0.002 * (number % 3))
            return number

        return make

    with made_ahead(maker(n) for n in range(40)) as made:
        assert list(itertools.islice(made, 30)) == list(range(30))
        with pytest.raises(BadInputError, match="the thirtieth"):
            next(made)
    with made_ahead(maker(n % 30) for n in itertools.count()) as made:
        assert list(itertools.islice(made, 5)) == list(range(5))


def test_files_written_in_threads_are_those_read_in_turn(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "_CHUNK_BYTES", 256)
    folder = tmp_path / "folder"
    folder.mkdir()
    for file in range(3):
        rows = "".join(f"2024-05-10 00:{file:02d}:{n % 60:02d}.{n:06d}+00:00,{n},1\n" for n in range(60))
        (folder / f"{file}.csv").write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}broken\n")
    report = open_trace(str(folder)).write(tmp_path / "t.parquet")
    loaded = open_trace(str(folder))
    assert report == loaded.account()
    assert (report.rows_read, report.rows_kept, report.dropped) == (183, 180, {"malformed_row": 3})
    assert pl.read_parquet(tmp_path / "t.parquet").equals(loaded.scan().collect())
