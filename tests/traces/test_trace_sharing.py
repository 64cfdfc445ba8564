"""Export reads back equal as far as a format carries; anonymised traces keep their shape and nothing of identity."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ramptrace
from traces.anonymise import anonymise
from traces.describe import describe
from traces.errors import BadInputError
from traces.export import TARGETS, export
from traces.lineage import LineageStep, metadata, steps_of
from traces.readers import READERS, mooncake, open_trace, own
from traces.readers.base import TRACE_COLUMNS
from traces.schema import Trace

SALT, OTHER_SALT = b"\x01" * 32, b"\x02" * 32
READ_AS = {"mooncake": "mooncake", "aiperf": "mooncake", "guidellm": "guidellm", "azure": "azure", "parquet": "own"}
maybe = st.none
lengths = st.integers(0, 2**31 - 1)
words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
row = st.fixed_dictionaries(
    {
        "arrival_us": st.integers(0, 40 * 86_400 * 10**6),
        "input_tokens": lengths,
        "output_tokens": lengths,
        "prefix_blocks": st.none() | st.lists(st.integers(0, 2**62), max_size=4),
        "session_id": st.none() | words,
        "images": st.none() | st.integers(0, 9),
        "model": st.none() | words,
        "think_us": st.none() | st.integers(0, 10**10),
        "source_status": st.none() | st.integers(200, 599),
        "payload_ref": st.none() | words,
    }
)


def frame_of(rows: list[dict], block_tokens: int = 512) -> pl.DataFrame:
    ordered = sorted(rows, key=lambda found: found["arrival_us"])
    first_us = ordered[0]["arrival_us"]
    for number, found in enumerate(ordered):
        found["row_id"] = number
        found["arrival_us"] -= first_us
        found["block_tokens"] = None if found.get("prefix_blocks") is None else block_tokens
    return pl.DataFrame({name: [r.get(name) for r in ordered] for name in TRACE_COLUMNS}, schema=TRACE_COLUMNS)


def carried(to: str) -> list[str]:
    """Return the columns that have to come back."""
    columns = {"row_id", "arrival_us", *TARGETS[to].carries}
    if "delay" not in mooncake._Line.__struct_fields__:
        columns -= {"think_us"} if to == "aiperf" else set()
    return [name for name in TRACE_COLUMNS if name in columns]


@pytest.mark.parametrize("to", list(TARGETS))
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(row, min_size=1, max_size=8))
def test_what_a_format_carries_reads_back_equal(to, rows):
    if READ_AS[to] not in READERS:
        pytest.skip(f"no reader of {to} is installed")
    trace = frame_of(rows)
    if to == "azure" and trace["images"].null_count() < trace.height:
        trace = trace.with_columns(pl.col("images").fill_null(0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "out"
        report = export(trace.lazy(), path, to, origin_us=None)
        again = open_trace(str(path), READ_AS[to])
        read = again.scan().collect()
        assert again.account().dropped == {}
    assert report.rows == trace.height
    assert read.select(carried(to)).equals(trace.select(carried(to)))
    hidden = {"row_id", "arrival_us", "block_tokens", *TARGETS[to].carries}
    known = {name: trace.height - trace[name].null_count() for name in TRACE_COLUMNS if name not in hidden}
    assert report.lost == {name: count for name, count in known.items() if count}


def test_the_date_survives_in_azure_and_is_said_to_be_made_up_otherwise(tmp_path):
    trace = frame_of([{"arrival_us": 0, "input_tokens": 1, "output_tokens": 2}])
    report = export(trace.lazy(), tmp_path / "a", "azure", origin_us=1_700_000_000_123_456)
    assert not report.invented_date
    assert open_trace(str(tmp_path / "a")).origin_us == 1_700_000_000_123_456
    assert export(trace.lazy(), tmp_path / "b", "azure", origin_us=None).invented_date


def test_a_real_trace_goes_to_mooncake_and_back_byte_for_byte(shared_traces, tmp_path):
    source = shared_traces / "mooncake_synthetic_trace.jsonl"
    loaded = open_trace(str(source))
    report = export(loaded.scan(), tmp_path / "again.jsonl", "mooncake", origin_us=None)
    assert (report.lost, report.dropped, report.hint) == ({}, {}, None)
    written = [json.loads(line) for line in (tmp_path / "again.jsonl").read_text().splitlines()]
    assert written == [json.loads(line) for line in source.read_text().splitlines()]


def test_blocks_of_another_size_are_counted_not_mislabelled(tmp_path):
    rows = [{"arrival_us": 0, "input_tokens": 1, "output_tokens": 2, "prefix_blocks": [7]}]
    trace = frame_of(rows, block_tokens=16)
    report = export(trace.lazy(), tmp_path / "t", "mooncake", origin_us=None)
    assert (report.lost, report.hint) == ({"prefix_blocks": 1}, "--format mooncake")
    assert "hash_ids" not in (tmp_path / "t").read_text()


def test_rows_without_lengths_are_refused_or_counted(tmp_path):
    known = {"arrival_us": 5, "input_tokens": 1, "output_tokens": 2}
    trace = frame_of([known, {"arrival_us": 0, "input_tokens": None, "output_tokens": 3}])
    with pytest.raises(BadInputError, match=r"1 rows have no input_tokens.*--drop-incomplete"):
        export(trace.lazy(), tmp_path / "t", "guidellm", origin_us=None)
    assert list(tmp_path.iterdir()) == []
    report = export(trace.lazy(), tmp_path / "t", "guidellm", origin_us=None, drop_incomplete=True)
    assert (report.rows, report.dropped) == (1, {"input_tokens": 1})
    with pytest.raises(BadInputError, match="nothing to export"):
        export(trace[:1].lazy(), tmp_path / "u", "guidellm", origin_us=None, drop_incomplete=True)


TALK = frame_of(
    [
        {"arrival_us": 0, "session_id": "alice@example.com", "model": "acme-ft-7", "prefix_blocks": [5, 6], "turn": 0},
        {"arrival_us": 1_500_000, "session_id": "bob", "model": "acme-ft-7", "prefix_blocks": [5, 9]},
        {
            "arrival_us": 2_700_000,
            "session_id": "alice@example.com",
            "prefix_blocks": [5, 6, 7],
            "turn": 1,
            "parent_row": 0,
            "think_us": 1_234_567,
            "payload_ref": "s3://acme/prompts/1",
        },
    ]
).with_columns(pl.col("row_id") + 40, pl.col("parent_row") + 40)


def test_identities_go_and_structure_stays():
    made, removed = anonymise(TALK.lazy(), SALT)
    Trace.validate(made)
    text = str(made.to_dicts())
    assert not any(word in text for word in ("alice", "bob", "acme", "s3:"))
    sessions = made["session_id"].to_list()
    assert sessions[0] == sessions[2] != sessions[1]
    assert made["row_id"].to_list() == [0, 1, 2]
    assert made["parent_row"].to_list() == [None, None, 0]
    assert made["arrival_us"].equals(TALK["arrival_us"])
    assert describe(made.lazy()).prefix_reuse == describe(TALK.lazy()).prefix_reuse
    assert not {5, 6, 7, 9} & set(made["prefix_blocks"].explode())
    done = {found.column: (found.done, found.values) for found in removed}
    assert done == {
        "payload_ref": ("dropped", 1),
        "session_id": ("hashed with the salt", 3),
        "model": ("hashed with the salt", 2),
        "prefix_blocks": ("hashed with the salt", 3),
        "row_id": ("numbered anew", 3),
    }


def test_the_salt_decides_the_hashes():
    one, same, other = (anonymise(TALK.lazy(), salt)[0] for salt in (SALT, SALT, OTHER_SALT))
    assert one.equals(same)
    assert not set(one["session_id"]) & set(other["session_id"])
    assert not set(one["prefix_blocks"].explode()) & set(other["prefix_blocks"].explode())


def test_dropping_and_coarsening():
    made, removed = anonymise(TALK.lazy(), SALT, identifiers="drop", grid_us=1_000_000)
    for column in ("session_id", "model", "turn", "parent_row", "think_us"):
        assert made[column].null_count() == 3
    assert made["arrival_us"].to_list() == [0, 1_000_000, 2_000_000]
    assert ("arrival_us", "coarsened") in [(found.column, found.done) for found in removed]


def call(capsys, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        ramptrace.main(["trace", *map(str, arguments)])
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "in" / "acme-prod.parquet"
    path.parent.mkdir()
    history = metadata([LineageStep(name="read", parameters={"file": "acme-gateway.log"})])
    own.write(path, TALK.lazy(), 1_700_000_000_000_000, history)
    return path


def test_the_command_forgets_date_history_and_salt(capsys, recorded, tmp_path):
    output = tmp_path / "out.parquet"
    code, out, _ = call(capsys, "anonymise", recorded, "-o", output, "--json")
    assert code == 0
    assert {"column": "first arrival", "done": "dropped", "values": 1} in json.loads(out)["removed"]
    assert open_trace(str(output)).origin_us is None
    assert b"acme" not in output.read_bytes()
    assert [step.name for step in steps_of(output)] == ["anonymise"]
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out.parquet"}
    again = tmp_path / "again.parquet"
    call(capsys, "anonymise", recorded, "-o", again)
    assert not set(pl.read_parquet(output)["session_id"]) & set(pl.read_parquet(again)["session_id"])


def test_a_kept_salt_makes_traces_match_and_is_private(capsys, recorded, tmp_path):
    salt, one, other = (tmp_path / name for name in ("salt", "one.parquet", "other.parquet"))
    for output in (one, other):
        assert call(capsys, "anonymise", recorded, "--salt-file", salt, "-o", output)[0] == 0
    assert pl.read_parquet(one).equals(pl.read_parquet(other))
    assert salt.stat().st_mode & 0o777 == 0o600
    assert salt.read_text().strip().encode() not in one.read_bytes()
    salt.write_text("sk-secret")
    code, _, err = call(capsys, "anonymise", recorded, "--salt-file", salt, "-o", one, "-f")
    assert (code, "sk-secret" in err, "not a salt" in err) == (2, False, True)


def test_export_says_what_is_lost(capsys, recorded, tmp_path):
    code, _, err = call(capsys, "export", recorded, "--to", "mooncake", "-o", tmp_path / "t.jsonl")
    assert (code, "no input_tokens" in err) == (2, True)
    code, out, _ = call(capsys, "export", "corpus:tiny-step", "--to", "guidellm", "-o", tmp_path / "t.jsonl", "--json")
    assert (code, json.loads(out)["lost"], json.loads(out)["rows"]) == (0, {}, 183)
    code, _, err = call(capsys, "export", recorded, "--to", "parquet", "-o", tmp_path / "t.parquet")
    assert (code, err.count("\n")) == (0, 1)
    assert [step.name for step in steps_of(tmp_path / "t.parquet")] == ["read", "read"]
    assert call(capsys, "export", recorded, "--to", "parquet", "-o", recorded)[0] == 2
