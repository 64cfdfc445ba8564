"""Made-up traffic: of the stated statistics, seeded, the same bytes for the same seed."""

from __future__ import annotations

import itertools
import math
import statistics
from random import Random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ramptrace
from traces import arrivals
from traces.conversations import Opening, Prefixes, Talk, converse
from traces.dispersion import idc_of
from traces.errors import BadInputError
from traces.lineage import steps_of
from traces.prefix import PrefixCounter
from traces.readers import open_trace
from traces.schema import Trace
from traces.synth import poisson_arrivals_us
from traces.units import US_PER_S

S = US_PER_S


@pytest.mark.parametrize("make", [arrivals.gamma_gap, arrivals.weibull_gap])
@pytest.mark.parametrize("cv", [0.3, 1.0, 2.5])
def test_renewal_gaps_have_their_mean_and_variation(make, cv):
    gap, draw = make(cv), Random(5)
    gaps = [gap(draw) for _ in range(60_000)]
    assert statistics.mean(gaps) == pytest.approx(1, abs=0.04)
    assert statistics.stdev(gaps) == pytest.approx(cv, rel=0.08)
    assert min(gaps) >= 0


def test_gamma_and_weibull_are_what_they_are_called():
    """At a CV of 1 both are exponential; at 2 the median tells Weibull from gamma."""
    draw = Random(1)
    exponential = [arrivals.gamma_gap(1.0)(draw) for _ in range(20_000)]
    assert sum(gap > 1 for gap in exponential) / 20_000 == pytest.approx(math.exp(-1), abs=0.01)
    gap = arrivals.weibull_gap(2.0)
    # Shape 0.5427 has a CV of 2; its median is scale x ln(2)^(1/shape).
    shape = 0.5427
    median = math.log(2) ** (1 / shape) / math.gamma(1 + 1 / shape)
    assert statistics.median([gap(draw) for _ in range(40_000)]) == pytest.approx(median, rel=0.04)


def test_a_renewal_process_disperses_as_the_square_of_its_variation():
    made = arrivals.renewal_arrivals_us(arrivals.gamma_gap(3.0), 20, 8000, Random(2))
    assert made[0] == 0
    assert made == sorted(made)
    assert len(made) == pytest.approx(160_000, rel=0.05)
    assert idc_of(pl.Series(made), 20 * S) == pytest.approx(9, rel=0.25)


def rate_between(made: list[int], start_s: float, end_s: float) -> float:
    return sum(start_s * S <= us < end_s * S for us in made) / (end_s - start_s)


def test_steps_ramps_and_spikes_have_their_shapes():
    step = poisson_arrivals_us(arrivals.step_steps(10, 60, 100, 50, 300), 1)
    assert rate_between(step, 0, 100) == pytest.approx(10, rel=0.2)
    assert rate_between(step, 100, 150) == pytest.approx(60, rel=0.15)
    assert rate_between(step, 150, 300) == pytest.approx(10, rel=0.2)
    ramp = poisson_arrivals_us(arrivals.ramp_steps(10, 90, 100, 80, 300), 1)
    assert rate_between(ramp, 135, 145) == pytest.approx(50, rel=0.2)
    assert rate_between(ramp, 180, 300) == pytest.approx(90, rel=0.1)
    steps = arrivals.spike_steps(5, 105, 60.5, 20, 200)
    assert sum(piece.length_s for piece in steps) == pytest.approx(200)
    spike = poisson_arrivals_us(steps, 1)
    assert rate_between(spike, 60.5, 62.5) == pytest.approx(100, rel=0.25)
    assert rate_between(spike, 80.5, 82.5) == pytest.approx(5 + 100 * math.exp(-1.05), rel=0.3)
    for bad in ((1, 2, 250, 100, 300), (1, 2, -1, 1, 300)):
        with pytest.raises(BadInputError, match="lies outside"):
            arrivals.step_steps(*bad)


def test_a_day_swings_around_its_mean():
    steps = arrivals.diurnal_steps(4, 0.5, 0.2, Random(3), period_s=86_400, length_s=2 * 86_400, peak_s=50_400)
    rates = [step.rate_per_s for step in steps]
    assert len(rates) == 2 * 1440
    assert statistics.mean(rates) == pytest.approx(4, rel=0.02)
    assert statistics.mean(rates[800:880]) == pytest.approx(6, rel=0.06)
    assert statistics.mean(rates[80:160]) == pytest.approx(2, rel=0.08)


def test_a_modulated_process_stays_as_long_as_stated():
    steps = arrivals.modulated_steps([1.0, 9.0, 30.0], [60.0, 20.0, 5.0], 100_000, Random(4))
    assert sum(step.length_s for step in steps) == pytest.approx(100_000)
    assert all(a.rate_per_s != b.rate_per_s for a, b in itertools.pairwise(steps))
    for rate, stay in ((1.0, 60.0), (9.0, 20.0), (30.0, 5.0)):
        stays = [step.length_s for step in steps if step.rate_per_s == rate]
        assert statistics.mean(stays) == pytest.approx(stay, rel=0.15)
    with pytest.raises(BadInputError, match="two states"):
        arrivals.modulated_steps([1.0], [1.0], 10, Random(1))


def test_clients_are_few_who_send_most():
    mixed = arrivals.clients(50, 40, skew=1.2, cv=1.5, spread=0.3, draw=Random(5))
    assert sum(client.rate_per_s for client in mixed) == pytest.approx(40)
    made = arrivals.mixture_arrivals_us(mixed, 600, seed=5)
    assert made == sorted(made)
    assert len(made) == pytest.approx(600 * 40, rel=0.1)
    first = sum(client == 0 for _, client in made) / len(made)
    assert first == pytest.approx(mixed[0].rate_per_s / 40, rel=0.15)
    # They have been running before: the first minute is as busy as the others.
    assert sum(us < 60 * S for us, _ in made) == pytest.approx(60 * 40, rel=0.2)


openings = st.lists(
    st.builds(
        Opening,
        arrival_us=st.integers(0, 100 * S),
        input_tokens=st.one_of(st.none(), st.integers(0, 200)),
        output_tokens=st.one_of(st.none(), st.integers(0, 200)),
    ),
    min_size=1,
    max_size=15,
).map(lambda found: sorted(found, key=lambda opening: opening.arrival_us))


@given(openings, st.sampled_from([1.0, 1.5, 4.0]), st.integers(0, 2**32))
def test_conversations_are_valid_traces(opened, turns, seed):
    talk = Talk(mean_turns=turns, mean_think_us=3 * S)
    prefixes = Prefixes(block_tokens=16, groups=3, shared_tokens=64)
    made = converse(opened, talk, prefixes, length_us=100 * S, seed=seed)
    Trace.validate(made)
    assert made["arrival_us"].is_sorted()
    rows = {row["row_id"]: row for row in made.iter_rows(named=True)}
    for row in rows.values():
        if row["input_tokens"] is not None:
            assert len(row["prefix_blocks"]) == math.ceil(row["input_tokens"] / 16)
        if row["parent_row"] is not None:
            before = rows[row["parent_row"]]
            assert (before["session_id"], before["turn"] + 1) == (row["session_id"], row["turn"])
            assert before["arrival_us"] <= row["arrival_us"]
            if row["input_tokens"] is not None and before["input_tokens"] is not None:
                assert row["input_tokens"] >= before["input_tokens"]
                whole = before["input_tokens"] // 16
                assert row["prefix_blocks"][:whole] == before["prefix_blocks"][:whole]
    assert (made["turn"].null_count() == made.height) == (turns == 1.0)


def test_turns_have_their_mean_and_blocks_are_shared():
    opened = [Opening(arrival_us=i * S, input_tokens=100, output_tokens=10) for i in range(4000)]
    prefixes = Prefixes(block_tokens=16, groups=2, shared_tokens=80)
    made = converse(opened, Talk(mean_turns=3.0, mean_think_us=S), prefixes, length_us=10**12, seed=1)
    assert made.height / 4000 == pytest.approx(3, rel=0.05)
    firsts = made.filter(pl.col("turn") == 0)["prefix_blocks"].list.first().value_counts().sort("prefix_blocks")
    assert firsts["prefix_blocks"].to_list() == [0, 5]
    assert firsts["count"][0] / firsts["count"][1] == pytest.approx(2, rel=0.15)
    counter = PrefixCounter()
    counter.add(made.filter(pl.col("turn") == 0))
    # Of 7 blocks (100 tokens) the first 5 are the shared system prompt.
    assert counter.result().block_share == pytest.approx(5 / 7, abs=0.01)


def call(capsys, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        ramptrace.main(["trace", "synth", *map(str, arguments)])
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


KINDS = {
    "poisson": "--rate 5",
    "gamma": "--rate 5 --cv 2",
    "weibull": "--rate 5 --cv 2",
    "modulated": "--rates 1,20 --stays 20s,5s",
    "diurnal": "--rate 5 --period 60s --peak 30s",
    "step": "--base 1 --to 9 --at 20s --for 20s",
    "ramp": "--base 1 --to 9 --at 20s --for 20s",
    "spike": "--base 1 --to 50 --at 20s",
    "clients": "--rate 5 --clients 10",
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_is_the_same_file_byte_for_byte(capsys, tmp_path, kind):
    options = [kind, *KINDS[kind].split(), "--length", "60s", "--turns", "2", "--block-tokens", "16"]
    paths = [tmp_path / f"{name}.parquet" for name in ("one", "same", "other")]
    for path, seed in zip(paths, (1, 1, 2), strict=True):
        assert call(capsys, *options, "--seed", seed, "-o", path)[0] == 0
    one, same, other = (path.read_bytes() for path in paths)
    assert one == same != other
    loaded = open_trace(str(paths[0]))
    assert loaded.account().dropped == {}
    Trace.validate(loaded.scan().collect())
    [made] = steps_of(paths[0])
    assert (made.name, made.seed, made.parameters["kind"]) == ("synth", 1, kind)


def test_the_rate_counts_requests_also_in_conversations(capsys, tmp_path):
    path = tmp_path / "t.parquet"
    call(capsys, "poisson", "--rate", 20, "--length", "20m", "--turns", 4, "--think", "2s", "-o", path)
    # Conversations that are under way when the trace ends are cut off.
    assert pl.read_parquet(path).height == pytest.approx(20 * 1200, rel=0.06)


def test_lengths_from_a_trace_stay_together(capsys, tmp_path):
    source = tmp_path / "pairs.csv"
    pairs = [(10, 1), (2000, 300), (50, 7)]
    source.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        + "".join(f"2024-01-01 00:00:0{i}.0,{a},{b}\n" for i, (a, b) in enumerate(pairs))
    )
    path = tmp_path / "t.parquet"
    assert call(capsys, "poisson", "--rate", 9, "--length", "60s", "--lengths-from", source, "-o", path)[0] == 0
    drawn = pl.read_parquet(path).select("input_tokens", "output_tokens")
    assert set(drawn.unique().rows()) == set(pairs)
    assert steps_of(path)[0].parameters["lengths_from"]["file"] == "pairs.csv"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("poisson --rate 0 --length 1m", "above 0"),
        ("poisson --rate nan --length 1m", "above 0"),
        ("poisson --rate 9e5 --length 10d", "at most 20,000,000"),
        ("poisson --rate 1 --length 0s", "above 0"),
        ("gamma --rate 1 --cv 0 --length 1m", "out of range"),
        ("poisson --rate 1 --length 1m --turns 0.5", "1 or more"),
        ("poisson --rate 1 --length 1m --input-tokens median=x", "such as median=400"),
        ("poisson --rate 1 --length 1m --output-tokens median=9,low=5,high=4", "low up to high"),
        ("poisson --rate 1 --length 1m --prefix-groups 3", "--block-tokens"),
        ("poisson --rate 1 --length 1m --prefix-groups 3 --block-tokens 16 --prefix-tokens 9", "no whole block"),
        ("step --base 1 --to 2 --at 50s --for 20s --length 1m", "lies outside"),
        ("modulated --rates 1,2 --stays 1s --length 1m", "two states"),
        ("clients --rate 1 --clients 0 --length 1m", "--clients from 1"),
        ("poisson --rate 1 --length 1m --lengths-from nowhere.csv", "no such file"),
    ],
)
def test_senseless_options_are_one_clear_line(capsys, tmp_path, options, told):
    code, out, err = call(capsys, *options.split(), "-o", tmp_path / "t.parquet")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err
    assert not list(tmp_path.iterdir())
