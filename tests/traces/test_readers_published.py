"""Readers of published traces: each format's quirks, on the made-up samples and on rows made for them."""

from __future__ import annotations

import json
import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.errors import BadInputError
from traces.lint import lint
from traces.readers import Options, open_trace
from traces.readers.delimited import Table
from traces.readers.lines import Block

COLUMNS = ("row_id", "arrival_us", "input_tokens", "output_tokens")


@pytest.fixture
def sample(shared_traces):
    return lambda name, **options: open_trace(str(shared_traces / "madeup" / name), None, Options(**options))


@pytest.fixture
def written(tmp_path):
    def write(text, **options):
        path = tmp_path / "chunk-7-trace.csv"
        path.write_text(text)
        return open_trace(str(path), None, Options(**options))

    return write


def codes(loaded):
    return {finding.code: finding for finding in lint(loaded.scan(), loaded.account())}


# --- BurstGPT


def test_burstgpt_keeps_failures_and_says_what_they_are(sample):
    loaded = sample("burstgpt_v1.csv")
    assert loaded.scan().select(*COLUMNS, "model").collect().rows() == [
        (0, 0, 410, 22, "ChatGPT"),
        (1, 45_000_000, 388, 0, "GPT-4"),
        (2, 45_000_000, 0, 0, "ChatGPT"),
    ]
    found = codes(loaded)
    assert (found["zero-output-tokens"].count, found["zero-output-tokens"].row) == (2, 2)
    assert "failed request" in found["format"].message
    assert loaded.account().first_arrival is None


def test_burstgpt_columns_go_by_name(sample, written):
    session = "3b0f2c7e-0000-4000-8000-000000000001"
    expected = [(0, 0, 900, 440, session, 41_000_000), (1, 3_000_000, 35, 28, None, 2_000_000)]
    columns = (*COLUMNS, "session_id", "source_latency_us")
    assert sample("burstgpt_v2.csv").scan().select(columns).head(2).collect().rows() == expected
    moved = written(
        "Model,Response tokens,Timestamp,Request tokens,Elapsed time,Session ID,Log Type,Total tokens\n"
        f"GPT-4,440,19440200.0,900,41,{session},Conversation log,1340\n"
        "ChatGPT,28,19440203.0,35,2,,API log,63\n"
        "ChatGPT,28,19440204.0,35,soon,,API log,63\n"
        "ChatGPT,28,inf,35,,,API log,63\n"
        ",28,19440205,35,,,API log,63\n"
        "ChatGPT,28,19440205,3.5,,,API log,63\n"
    )
    assert moved.scan().select(columns).collect().rows() == [*expected, (2, 4_000_000, 35, 28, None, None)]
    assert moved.account().dropped == {"bad_timestamp": 1, "missing_field": 1, "bad_tokens": 1}


# --- Bailian, RAGPulse, GuideLLM, Vidur, splitwise-sim


def test_bailian_links_turns_and_tells_orphans(sample):
    loaded = sample("bailian.jsonl")
    assert loaded.scan().select(*COLUMNS, "session_id", "turn", "parent_row", "block_tokens").collect().rows() == [
        (0, 0, 40, 9, "10", 1, None, 16),
        (1, 13_906_000, 70, 14, "10", 2, 0, 16),
        (2, 14_386_000, 16, 0, "3", 4, None, 16),
    ]
    assert loaded.account().remarks == {"missing_parent": 1}
    assert codes(loaded)["missing-parent"].row == 3


def test_ragpulse_reads_seconds_from_text_and_counts_the_blank_end(sample, tmp_path, shared_traces):
    loaded = sample("ragpulse.jsonl")
    assert loaded.scan().select(*COLUMNS, "turn", "parent_row", "prefix_blocks", "block_tokens").collect().rows() == [
        (0, 0, 3112, 192, 1, None, [1, 2, 3, 4, 5, 6], None),
        (2, 9_000_000, 2890, 77, 2, 0, [1, 2, 8, 9, 10, 11], None),
        (1, 11_000_000, 3000, 80, 1, None, [1, 2, 5, 7], None),
    ]
    assert loaded.account().inversions == 1
    assert codes(loaded)["order"].severity == "warning"
    path = tmp_path / "r.jsonl"
    path.write_text((shared_traces / "madeup" / "ragpulse.jsonl").read_text() + "\n")
    again = open_trace(str(path))
    assert again.account().dropped == {"blank_line": 1}
    assert codes(again)["dropped-blank-line"].severity == "info"


def test_guidellm_takes_seconds_from_any_origin(sample, written):
    assert sample("guidellm_trace.jsonl").scan().select(COLUMNS).collect().rows() == [
        (0, 0, 256, 128),
        (1, 500_000, 64, 16),
        (2, 3_000_000, 1024, 2),
    ]
    late = '{"timestamp": %s, "input_length": 1, "output_length": 1}\n'
    loaded = written(late % 1777420998.5 + late % 1777420998.625)
    assert loaded.scan().collect()["arrival_us"].to_list() == [0, 125_000]


def test_simulators_inputs_may_have_more_columns(written):
    vidur = written("id,arrived_at,num_prefill_tokens,num_decode_tokens,pd_ratio\n0,0.25,5,6,1\n1,1.0000004,7,8,1\n")
    assert vidur.scan().select(COLUMNS).collect().rows() == [(0, 0, 5, 6), (1, 750_000, 7, 8)]
    splitwise = "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
    assert written(splitwise + "0,2,0,1.5,1,10,20\n").account().format == "splitwise-sim"


# --- ServeGen


def test_servegen_draws_the_stated_load_and_the_same_for_the_same_seed(sample):
    loaded = sample("servegen_chunk-trace.csv", seed=5)
    report, kept = loaded.account(), loaded.scan().collect()
    assert report.dropped == {"idle_window": 1}
    assert "seed 5" in report.time_text
    assert "not a recording" in codes(loaded)["format"].message
    assert kept.equals(sample("servegen_chunk-trace.csv", seed=5).scan().collect())
    assert not kept.equals(sample("servegen_chunk-trace.csv", seed=6).scan().collect())
    # 52 and 18 requests are expected in the two windows.
    assert 30 < report.rows_kept < 120
    assert kept["arrival_us"].max() < 1_200_000_000


@pytest.mark.parametrize(("law", "shape"), [("Gamma", 0.4), ("Gamma", 3.0), ("Weibull", 0.8), ("Weibull", 1.7)])
def test_servegen_gaps_have_the_windows_rate_and_the_laws_variation(written, law, shape):
    kept = written(f"0,50,1,{law},{shape},9\n").scan().collect()
    gaps = kept["arrival_us"].diff().drop_nulls() / 1e6
    if law == "Gamma":
        variation = 1 / math.sqrt(shape)
    else:
        variation = math.sqrt(math.gamma(1 + 2 / shape) / math.gamma(1 + 1 / shape) ** 2 - 1)
    assert statistics.fmean(gaps) == pytest.approx(1 / 50, rel=0.05)
    assert statistics.stdev(gaps) * 50 == pytest.approx(variation, rel=0.06)


def test_servegen_lengths_come_from_the_dataset_beside_and_folders_are_all_clients(written, tmp_path):
    windows = {"0": {"input_tokens": "{5: 0.5, 9: 0.5}", "output_tokens": "{2: 1.0}"}, "600": {"input_tokens": "{}"}}
    (tmp_path / "chunk-7-dataset.json").write_text(json.dumps(windows))
    loaded = written("0,2,1,Gamma,1,1\n600,1,1,Weibull,1,1\n")
    kept = loaded.scan().collect()
    early = kept.filter(kept["arrival_us"] + 1_000_000 < 600_000_000)
    assert set(early["input_tokens"]) == {5, 9}
    assert set(early["output_tokens"]) == {2}
    assert kept["input_tokens"].null_count() > 0
    (tmp_path / "chunk-8-trace.csv").write_text("0,1,1,Gamma,1,1\n")
    (tmp_path / "chunk-8-dataset.json").write_text("{}")
    both = open_trace(str(tmp_path)).account()
    assert (both.files, both.format) == (2, "servegen")
    assert both.rows_kept > kept.height
    (tmp_path / "chunk-7-dataset.json").write_text('{"0": {"input_tokens": "__import__(\'os\').abort()"}}')
    with pytest.raises(BadInputError, match=r"chunk-7-dataset\.json: not a ServeGen dataset"):
        loaded.scan().collect()


def test_servegen_rows_that_describe_no_window_are_counted(written, tmp_path):
    lines = ["0,1,1,Gamma,1,1", "600,0,0,,0,0", *[f"{1200 + n},1,1,Gamma,1,1" for n in range(20)]]
    odd = ["9000,1,1,Pareto,1,1", "9600,1e9,1,Gamma,1,1", "", "9900,nan,1,Gamma,1,1", "1,2", "9950,0,1,Gamma,1,1"]
    report = written("\n".join([*lines, *odd]) + "\n").account()
    assert report.dropped == {"idle_window": 2, "malformed_row": 4, "blank_line": 1}
    with pytest.raises(BadInputError, match="not a known trace format"):
        written("1200,1,1,Pareto,1,1\n")


# --- both ways of reading comma-separated rows

_FIELDS = st.sampled_from(
    ["1", "0", "-1", "+5", " 5", "5 ", "1_0", "1.0", "1e3", "", "x", "99999999999", "٣", "0x1", "007"]
)
_STAMPS = st.sampled_from(
    [
        "2024-05-10 00:00:00.011200+00:00",
        "2024-05-10 00:00:00.01120+00:00",
        "2024-05-10 00:00:01+00:00",
        "2024-05-10 00:00:00.0112000",
        "2024-05-10 00:00:00.0112003",
        "2024-05-10 00:00:00.011200x",
        "2024-05-10 00:00:00.011200",
        "2024-05-10 00:00:00.011200Z",
        "2024-05-10T00:00:00.011200",
        "2024-05-10 00:00:00.01120 +00:00",
        "2024-5-10 00:00:00.0112000",
        "2024-05-10 24:00:00.011200",
        "2024-02-30 00:00:00.011200",
        "2024-05-10 00:00:00.+11200",
        "+024-05-10 00:00:00.011200",
        "2024-05-10 00:00:00.011200+01:00",
        "",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(_STAMPS, _FIELDS, _FIELDS), min_size=1, max_size=3), st.sampled_from(["\n", "\r\n"]))
def test_the_quick_and_the_careful_way_agree(rows, ending):
    from traces.readers.azure import TABLE

    data = "".join(f"{','.join(row)}{ending}" for row in rows).encode()
    block = Block(1, data, len(rows))
    columns = list(TABLE.columns[:3])
    careful = Table._careful(TABLE, block, columns)
    quick = Table._quick(TABLE, block, columns)
    if quick is not None:
        assert quick.rows.equals(careful.rows)
    plain = all(row[0].startswith("2024-05-10 00:00:00.0112") and {*row[1:]} <= {"1", "0", "007"} for row in rows)
    if plain and careful.rows["reason"].null_count() == len(rows):
        assert quick is not None
