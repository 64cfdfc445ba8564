"""The tables: what they promise, and what they refuse."""

from __future__ import annotations

import dataframely as dy
import polars as pl
import pytest

from traces import schema
from traces.schema import ANCHORS, HEADLINES, PHASES, REPORTED_SPANS, TABLES, Observation, Trace

every_table = pytest.mark.parametrize(
    "table", [found for found in vars(schema).values() if isinstance(found, type) and issubclass(found, dy.Schema)]
)


@every_table
def test_instants_are_utc_microseconds_and_lengths_whole(table):
    for name, kind in pl.Schema(table).items():
        if isinstance(kind, pl.Datetime):
            assert kind == pl.Datetime("us", "UTC"), name
        if name.endswith("_us"):
            assert kind in {pl.Int64, pl.List(pl.Int64)}, name


@every_table
def test_a_table_survives_parquet_with_its_types(table, tmp_path):
    empty = pl.DataFrame(schema=pl.Schema(table))
    empty.write_parquet(tmp_path / "t.parquet")
    assert pl.read_parquet(tmp_path / "t.parquet").schema == empty.schema


@every_table
def test_a_table_says_what_it_is(table):
    assert table.__doc__


def test_words_refer_to_words_that_exist():
    assert set(REPORTED_SPANS) | set(REPORTED_SPANS.values()) <= set(ANCHORS)
    leaves = [leaf for leaves in HEADLINES.values() for leaf in leaves]
    assert len(leaves) == len(set(leaves))
    assert set(PHASES) - set(leaves) == {"staging", "recovery"}
    for start, end in ((value, key) for key, value in REPORTED_SPANS.items()):
        assert ANCHORS.index(start) < ANCHORS.index(end)


def test_folders_are_named_after_their_tables():
    assert list(TABLES) == ["requests", "observations", "samples", "gaps"]


def observation(**changed: object) -> pl.DataFrame:
    row: dict[str, object] = dict.fromkeys(pl.Schema(Observation))
    row |= {
        "platform": "sagemaker",
        "resource": "r",
        "source": "s",
        "method": "event",
        "native_id": "n",
        "clock": "service",
        "response_received": 5,
        "verified": False,
    }
    return pl.DataFrame([row | changed], schema=pl.Schema(Observation))


@pytest.mark.parametrize("bounds", [{}, {"lo": 1}, {"hi": 1}, {"lo": 1, "hi": 1}, {"lo": 1, "hi": 2}])
def test_an_interval_may_be_open(bounds):
    Observation.validate(observation(**bounds))


@pytest.mark.parametrize("changed", [{"lo": 2, "hi": 1}, {"verified": None}, {"response_received": None}])
def test_what_an_observation_refuses(changed):
    with pytest.raises(dy.exc.ValidationError):
        Observation.validate(observation(**changed))


def test_a_trace_refuses_a_row_id_twice_and_a_negative_arrival():
    def trace(rows: list[tuple[int, int]]) -> pl.DataFrame:
        full = [dict.fromkeys(pl.Schema(Trace)) | {"row_id": i, "arrival_us": us} for i, us in rows]
        return pl.DataFrame(full, schema=pl.Schema(Trace))

    Trace.validate(trace([(0, 0), (1, 0)]))
    for rows in ([(0, 0), (0, 1)], [(0, -1)]):
        with pytest.raises(dy.exc.ValidationError):
            Trace.validate(trace(rows))
