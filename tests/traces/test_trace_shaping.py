"""Transforms as a user asks for them: parsed, applied in order, recorded, and kept valid."""

from __future__ import annotations

import itertools
import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ramptrace
from traces import shaping, superpose, transform
from traces.chance import uniform
from traces.errors import BadInputError
from traces.lineage import LineageStep, steps_of
from traces.manifest import TraceUsed
from traces.readers import open_trace
from traces.readers.base import TRACE_COLUMNS
from traces.schema import Trace
from traces.superpose import facts_of
from traces.units import US_PER_S

S = US_PER_S


def frame_of(rows: list[dict]) -> pl.LazyFrame:
    columns = {name: [row.get(name) for row in rows] for name in TRACE_COLUMNS}
    return pl.LazyFrame(columns | {"row_id": range(len(rows))}, schema=TRACE_COLUMNS)


TALK = frame_of(
    [
        {
            "arrival_us": 0,
            "session_id": "a",
            "turn": 0,
            "prefix_blocks": [1, 2],
            "block_tokens": 16,
            "input_tokens": 32,
        },
        {"arrival_us": 4 * S, "prefix_blocks": [1, 9], "block_tokens": 16, "input_tokens": 20},
        {
            "arrival_us": 5 * S,
            "session_id": "a",
            "turn": 1,
            "parent_row": 0,
            "think_us": 2 * S,
            "prefix_blocks": [1, 2, 3],
            "block_tokens": 16,
            "input_tokens": 48,
        },
        {"arrival_us": 20 * S, "model": "small"},
    ]
)
conversations = st.lists(
    st.tuples(st.integers(0, 60 * S), st.sampled_from([None, "a", "b", "c"])), min_size=2, max_size=25
).map(lambda rows: sorted(rows, key=lambda row: row[0]))


def spoken(rows: list[tuple[int, str | None]]) -> pl.LazyFrame:
    latest: dict[str, int] = {}
    made = []
    for number, (arrival_us, session) in enumerate(rows):
        made.append({"arrival_us": arrival_us, "session_id": session, "parent_row": latest.get(session or "")})
        if session:
            latest[session] = number
    return frame_of(made)


def valid(frame: pl.LazyFrame) -> pl.DataFrame:
    """Return the rows, after everything a trace promises was checked."""
    rows = frame.collect()
    Trace.validate(rows)
    assert rows["arrival_us"].is_sorted()
    by_id = {row["row_id"]: row for row in rows.iter_rows(named=True)}
    for row in by_id.values():
        if row["parent_row"] is not None and row["parent_row"] in by_id:
            assert by_id[row["parent_row"]]["session_id"] == row["session_id"]
            assert by_id[row["parent_row"]]["arrival_us"] <= row["arrival_us"]
    return rows


@given(conversations, st.floats(1.01, 4), st.integers(0, 2**32))
def test_superposition_keeps_conversations_whole_and_in_order(rows, factor, seed):
    trace = spoken(rows)
    facts = facts_of(trace)
    made = valid(superpose.superpose(trace, factor, 10 * S, seed, facts))
    original = trace.collect()
    assert made.filter(pl.col("row_id") < facts.next_row_id).select("row_id", "arrival_us").rows() == (
        original.select("row_id", "arrival_us").rows()
    )
    assert int(factor) * len(rows) <= made.height <= (int(factor) + 1) * len(rows)


@given(conversations, st.floats(0.05, 1), st.integers(0, 2**32))
def test_thinning_keeps_or_drops_whole_conversations(rows, share, seed):
    trace = spoken(rows)
    kept = valid(superpose.thin(trace, share, seed, facts_of(trace)))
    for session in ("a", "b", "c"):
        assert kept.filter(pl.col("session_id") == session).height in {0, sum(name == session for _, name in rows)}


@given(conversations, st.integers(1, 4))
def test_loops_and_merges_keep_identities_apart(rows, times):
    trace = spoken(rows)
    facts = facts_of(trace)
    looped = valid(superpose.loop(trace, times, facts))
    assert looped.height == times * len(rows)
    merged = valid(superpose.merge(trace, trace, facts))
    assert merged.height == 2 * len(rows)
    sessions = {name for _, name in rows if name}
    assert merged["session_id"].drop_nulls().n_unique() == 2 * len(sessions)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=40).map(sorted), st.integers(0, 2**32))
def test_jitter_keeps_order_and_never_passes_the_next_stamp(stamps, seed):
    trace = frame_of([{"arrival_us": stamp * S} for stamp in stamps])
    moved = transform.jitter_ties(trace, seed).collect()
    assert moved["row_id"].to_list() == list(range(len(stamps)))
    assert moved.schema == TRACE_COLUMNS
    assert moved["arrival_us"].is_sorted()
    followers = dict(itertools.pairwise(sorted(set(stamps))))
    for stamp, arrival_us in zip(stamps, moved["arrival_us"], strict=True):
        assert stamp * S <= arrival_us
        assert stamp not in followers or arrival_us < followers[stamp] * S
        assert stamps.count(stamp) > 1 or arrival_us == stamp * S


def test_copies_share_what_conversations_shared_and_nothing_else():
    facts = facts_of(TALK)
    looped = superpose.loop(TALK, 2, facts).collect()
    assert looped["prefix_blocks"].to_list()[4:] == [[1, 12], [1, 19], [1, 12, 13], None]
    assert looped["session_id"].to_list() == ["a", None, "a", None, "a/1", None, "a/1", None]
    assert looped["parent_row"].to_list()[4:] == [None, None, 4, None]
    merged = superpose.merge(TALK, TALK, facts).collect()
    assert set(merged.filter(pl.col("row_id") == 4)["prefix_blocks"].item()) == {11, 12}


def test_clamping_cuts_the_blocks_of_a_shortened_prompt():
    cut = transform.clamp_tokens(TALK, (None, 30)).collect()
    assert cut["prefix_blocks"].to_list() == [[1, 2], [1, 9], [1, 2], None]
    assert cut["input_tokens"].to_list() == [30, 20, 30, None]


def test_the_hash_is_splitmix64():
    """Reference values of the generator with the state that the purpose gives, computed with integers."""
    mask = 2**64 - 1

    def reference(state: int) -> int:
        z = state & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    from hashlib import blake2b

    start = int.from_bytes(blake2b(b"3/x", digest_size=8).digest(), "big")
    keys = [0, 1, 2, 10**12, 2**63 - 1]
    expected = [(reference(start + key * 0x9E3779B97F4A7C15) >> 11) * 2.0**-53 + 2.0**-54 for key in keys]
    drawn = pl.DataFrame({"key": keys}).select(uniform(pl.col("key"), 3, "x")).to_series().to_list()
    assert drawn == expected
    many = pl.DataFrame({"key": range(20_000)}).select(uniform(pl.col("key"), 3, "x")).to_series()
    assert many.mean() == pytest.approx(0.5, abs=0.01)
    assert many.std() == pytest.approx(12**-0.5, abs=0.01)


def test_zones_move_the_clock_and_repair_the_hour_that_autumn_repeats(tmp_path):
    # Local stamps of Berlin around the end of summer time 2024 (27 October, 03:00 becomes 02:00).
    path = tmp_path / "local.csv"
    stamps = ("2024-10-27 01:30:00.0", "2024-10-27 02:30:00.0", "2024-10-27 03:30:00.0")
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"{stamp},1,2\n" for stamp in stamps))
    named = shaping.apply(shaping.load(open_trace(str(path))), "shift-zone", "Europe/Berlin", shaping.Drawing())
    assert named.frame.collect()["arrival_us"].to_list() == [0, 3600 * S, 3 * 3600 * S]
    fixed = shaping.apply(shaping.load(open_trace(str(path))), "shift-zone", "+02:00", shaping.Drawing())
    assert fixed.origin_us == named.origin_us
    assert fixed.frame.collect()["arrival_us"].to_list() == [0, 3600 * S, 2 * 3600 * S]
    with pytest.raises(BadInputError, match="not a time zone"):
        shaping.apply(shaping.load(open_trace(str(path))), "shift-zone", "Mars/Olympus", shaping.Drawing())
    with pytest.raises(BadInputError, match="it has no zone"):
        shaping.apply(shaping.load(open_trace("corpus:tiny-step")), "shift-zone", "+02:00", shaping.Drawing())


@pytest.mark.parametrize(
    ("step", "value", "told"),
    [
        ("window", "2h..3h", "no arrival in the window"),
        ("time-scale", "0", "above 0"),
        ("rate-scale", "nan", "above 0"),
        ("rate-scale", "1e9", "at most 1000"),
        ("rate-scale", "1e-9", "none of the 183 rows"),
        ("jitter-ties", "0", "nothing would move"),
        ("loop", "1.5", "how many times"),
        ("model", "gpt", "names no models"),
        ("clamp-tokens", "input=9..3", "expected input=LOW..HIGH"),
        ("clamp-tokens", "prompt=1..3", "expected input=LOW..HIGH"),
        ("merge", "nowhere.csv", "no such file"),
    ],
)
def test_senseless_values_are_one_clear_line(step, value, told):
    with pytest.raises(BadInputError, match=told) as caught:
        shaping.apply(shaping.load(open_trace("corpus:tiny-step")), step, value, shaping.Drawing())
    assert "\n" not in str(caught.value)


def test_no_jitter_is_refused():
    with pytest.raises(BadInputError, match="same instants"):
        shaping.apply(shaping.load(open_trace("corpus:tiny-step")), "rate-scale", "2", shaping.Drawing(jitter="0s"))


def call(capsys, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        ramptrace.main(["trace", *map(str, arguments)])
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


def test_steps_apply_in_the_order_given_and_are_recorded(capsys, tmp_path):
    one, other = tmp_path / "one.parquet", tmp_path / "other.parquet"
    code, out, _ = call(
        capsys, "transform", "corpus:tiny-step", "--window", "5s..25s", "--time-scale", 2, "--rate-scale", 0.5,
        "--seed", 9, "-o", one, "--json",
    )  # fmt: skip
    document = json.loads(out)
    assert code == 0
    assert [step["name"] for step in document["steps"]] == ["window", "time-scale", "rate-scale"]
    call(capsys, "transform", "corpus:tiny-step", "--time-scale", 2, "--window", "5s..25s", "-o", other)
    assert pl.read_parquet(one)["arrival_us"].max() <= 10 * S  # 20 s at twice the speed
    assert pl.read_parquet(other)["arrival_us"].max() <= 10 * S  # 30 s at twice the speed, from second 5 on
    assert [step.name for step in steps_of(one)] == ["read", "window", "time-scale", "rate-scale"]
    assert steps_of(one)[-1] == LineageStep(name="rate-scale", parameters={"factor": 0.5, "method": "thinning"}, seed=9)
    assert [step.name for step in steps_of(other)] == ["read", "time-scale", "window"]
    assert open_trace(str(one)).account().rows_kept == document["after"]["rows"] < document["before"]["rows"]


def test_the_same_seed_makes_the_same_rows_and_another_seed_others(capsys, tmp_path):
    paths = [tmp_path / f"{i}.parquet" for i in range(3)]
    for path, seed in zip(paths, (1, 1, 2), strict=True):
        call(capsys, "transform", "corpus:tiny-step", "--rate-scale", "1.5", "--seed", seed, "-o", path)
    one, same, other = (pl.read_parquet(path) for path in paths)
    assert one.equals(same)
    assert not one.equals(other)


def test_a_second_transform_remembers_the_first(capsys, tmp_path):
    one, other = tmp_path / "one.parquet", tmp_path / "other.parquet"
    call(capsys, "transform", "corpus:tiny-step", "--loop", 2, "-o", one)
    code, out, _ = call(capsys, "transform", one, "--merge", "corpus:tiny-step", "-o", other)
    assert code == 0
    assert "step 1\tmerge: with corpus:tiny-step" in out
    assert [step.name for step in steps_of(other)] == ["read", "loop", "read", "merge"]
    assert call(capsys, "transform", other, "--loop", 2, "-o", other)[0] == 2
    assert call(capsys, "transform", other, "--loop", 2, "--loop", 3, "-o", one)[0] == 2
    code, _, err = call(capsys, "transform", other, "-o", one)
    assert (code, "nothing to do" in err) == (2, True)


def test_a_replay_says_what_was_done_to_its_trace(capsys, tmp_path):
    from loadgen.intake import cut_trace
    from loadgen.scenario_file import build_scenario

    path = tmp_path / "cut.parquet"
    call(capsys, "transform", "corpus:tiny-step", "--rate-scale", 0.5, "-o", path)
    scenario = build_scenario({"trace": {"path": str(path)}, "target": {"url": "http://127.0.0.1:1"}}, origin="test")
    used = cut_trace(scenario).used
    assert isinstance(used, TraceUsed)
    assert [step.name for step in used.transforms] == ["read", "rate-scale"]


def gateway_log(path, first_s, count=4):
    rows = [{"timestamp": first_s + n, "model": "m", "prompt_tokens": 5, "completion_tokens": 2} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_commands_that_change_a_trace_take_what_declares_it(tmp_path, capsys):
    log, out = gateway_log(tmp_path / "log.jsonl", 1_700_000_000), tmp_path / "out"
    declared = ("--format", "gateway", "--time-unit", "s", "--sampling-percent", "50")
    for command in (("export", "--to", "parquet"), ("anonymise",), ("transform", "--window", "0s..3s")):
        assert call(capsys, command[0], log, *command[1:], "-o", out, "-f")[0] == 2
        assert call(capsys, command[0], log, *command[1:], *declared, "-o", out, "-f")[0] == 0
        assert open_trace(str(out)).account().sampling_percent == 50
    read = steps_of(out)[0]
    assert (read.name, read.parameters["time_unit"], read.parameters["sampling_percent"]) == ("read", "s", 50)


def test_a_sample_is_brought_to_its_real_rate_once(tmp_path, capsys):
    sampled, whole = tmp_path / "s.parquet", tmp_path / "w.parquet"
    declared = ("--sampling-percent", "25")
    assert call(capsys, "import", "corpus:tiny-step", *declared, "-o", sampled)[0] == 0
    assert call(capsys, "transform", sampled, "--rate-scale", "sampling", "--rate-jitter", "5s", "-o", whole)[0] == 0
    report = open_trace(str(whole)).account()
    assert (report.rows_kept, report.sampling_percent) == (4 * open_trace("corpus:tiny-step").account().rows_kept, None)
    parameters = steps_of(whole)[-1].parameters
    assert parameters == {"factor": 4, "method": "superposition", "jitter": "5s", "sampling_percent": 25}
    code, _, err = call(capsys, "transform", whole, "--rate-scale", "sampling", "-o", tmp_path / "x.parquet")
    assert (code, "nobody said which share" in err) == (2, True)
    code, _, err = call(capsys, "transform", whole, "--merge", sampled, "-o", tmp_path / "x.parquet")
    assert (code, "is a sample of 25 %" in err) == (2, True)
    code, out, _ = call(capsys, "info", sampled, "--json")
    figures = json.loads(out)
    assert figures["real_mean_rate_per_s"] == pytest.approx(4 * figures["mean_rate_per_s"])


def test_one_seed_is_for_reading_and_for_the_steps(tmp_path, capsys):
    talks = tmp_path / "t.json"
    talks.write_text(
        json.dumps([{"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yo"}]}] * 9)
    )
    made = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        made.append(tmp_path / name)
        options = ("--rate", "1", "--chars-per-token", "4", "--rate-scale", "2", "--rate-jitter", "1s", "--seed", seed)
        assert call(capsys, "transform", talks, *options, "-o", made[-1])[0] == 0
    first, second, third = map(pl.read_parquet, made)
    assert first.equals(second)
    assert not first.equals(third)
    assert [step.seed is None for step in steps_of(made[0])] == [False, False]


def test_a_loop_may_be_given_how_long_it_lasts(tmp_path, capsys):
    out = tmp_path / "out.parquet"
    trace = open_trace("corpus:tiny-step").scan().collect()
    facts = facts_of(trace.lazy())
    assert call(capsys, "transform", "corpus:tiny-step", "--loop", "100s", "-o", out)[0] == 0
    looped, period_us = pl.read_parquet(out), superpose.loop_period_us(facts)
    expected = [k * period_us + us for k in range(10) for us in trace["arrival_us"] if k * period_us + us < 100 * S]
    assert looped["arrival_us"].to_list() == expected
    assert steps_of(out)[-1].parameters == {"duration": "100s"}


@pytest.mark.parametrize(("first", "second"), [(0, 10), (10, 0), (7, 7)])
def test_a_merge_by_the_clock_keeps_recorded_times(tmp_path, capsys, first, second):
    logs = [gateway_log(tmp_path / f"{n}.jsonl", 1_700_000_000 + at) for n, at in enumerate((first, second))]
    for log in logs:
        assert call(capsys, "import", log, "--format", "gateway", "--time-unit", "s", "-o", f"{log}.parquet")[0] == 0
    out = tmp_path / "out.parquet"
    arguments = (f"{logs[0]}.parquet", "--merge", f"{logs[1]}.parquet", "--merge-by", "clock")
    assert call(capsys, "transform", *arguments, "-o", out)[0] == 0
    merged = open_trace(str(out))
    begin = min(first, second)
    assert merged.origin_us == (1_700_000_000 + begin) * S
    expected = sorted((at - begin + n) * S for at in (first, second) for n in range(4))
    assert merged.scan().collect()["arrival_us"].to_list() == expected
    undated = ("transform", *arguments[:1], "--merge", "corpus:tiny-step", "--merge-by", "clock")
    code, _, err = call(capsys, *undated, "-o", tmp_path / "x.parquet")
    assert (code, "relative to its start" in err) == (2, True)


@pytest.mark.parametrize(
    "command",
    [
        ("import", "corpus:tiny-step"),
        ("transform", "corpus:tiny-step", "--loop", "2"),
        ("export", "corpus:tiny-step", "--to", "guidellm"),
        ("anonymise", "corpus:tiny-step"),
        ("plot", "corpus:tiny-step"),
        ("synth", "poisson", "--rate", "1", "--length", "10s"),
    ],
)
def test_a_file_that_is_there_is_replaced_on_request_only(tmp_path, capsys, command):
    out = tmp_path / "out.svg"
    out.write_text("precious")
    code, _, err = call(capsys, *command, "-o", out)
    assert (code, out.read_text()) == (2, "precious")
    assert "is there already; name another file, or replace it with --force" in err
    assert call(capsys, *command, "-o", out, "--force")[0] == 0
    assert out.read_bytes() != b"precious"


def test_a_reject_file_that_is_there_is_replaced_on_request_only(tmp_path, capsys):
    rejects = tmp_path / "rejects.jsonl"
    rejects.write_text("precious")
    for command in ("lint", "import"):
        assert call(capsys, command, "corpus:tiny-step", "--reject-file", rejects)[0] == 2
        assert rejects.read_text() == "precious"
    assert call(capsys, "lint", "corpus:tiny-step", "--reject-file", rejects, "-f")[0] == 0
    assert rejects.read_text() == ""


def test_a_replay_of_a_sample_says_so(capsys, tmp_path, caplog):
    from loadgen.intake import cut_trace
    from loadgen.scenario_file import build_scenario

    source, path, whole = tmp_path / "log.jsonl", tmp_path / "sample.parquet", tmp_path / "whole.parquet"
    call(capsys, "export", "corpus:tiny-step", "--to", "mooncake", "-o", source)
    call(capsys, "import", source, "--sampling-percent", 25, "-o", path)
    call(capsys, "transform", path, "--rate-scale", "sampling", "-o", whole)
    cuts = {}
    for file in (path, whole):
        target = {"url": "http://127.0.0.1:1"}
        caplog.clear()
        cuts[file] = cut_trace(build_scenario({"trace": {"path": str(file)}, "target": target}, origin="test")).used
        assert ("is a sample of 25 %" in caplog.text) == (file == path)
    assert cuts[path].sampling_percent == 25
    assert cuts[whole].sampling_percent is None
    assert cuts[whole].rows > 2.5 * cuts[path].rows, "superposed to about four times the requests"
