"""Critical path, overlap ledger, drag, temporal network, counterfactual splits: golden vectors and laws."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from analysis.counterfactual import Split, shapley_range, telescope
from analysis.critical_path import Span, drag, equal_shares, ledger, walk
from analysis.network import ContradictionError, Network

BEFORE = [
    Span(name="pre", start=0, end=120),
    Span(name="pull", start=120, end=453, after=("pre",)),
    Span(name="model", start=120, end=288, after=("pre",)),
    Span(name="start", start=453, end=525, after=("pull", "model")),
]
AFTER = [
    Span(name="pre", start=0, end=120),
    Span(name="model", start=120, end=197, after=("pre",)),
    Span(name="start", start=197, end=258, after=("model",)),
]


def chain(*rows):
    return [
        Span(name=name, start=start, end=end, after=(rows[i - 1][0],) if i else ())
        for i, (name, start, end) in enumerate(rows)
    ]


def test_cp1_serial_phases_are_their_own_lengths():
    spans = chain(("prov", 0, 100), ("pull", 100, 400), ("load", 400, 450))
    assert walk(spans, 0, 450).amounts() == {"prov": 100, "pull": 300, "load": 50}


def test_cp2_and_cp3_the_published_case():
    before, after = walk(BEFORE, 0, 525), walk(AFTER, 0, 258)
    assert before.amounts() == {"pre": 120, "pull": 333, "start": 72}
    assert before.slack == {"model": 165}
    assert after.amounts() == {"pre": 120, "model": 77, "start": 61}


def test_cp4_longer_download_is_the_path():
    spans = [
        Span(name="pull", start=0, end=50),
        Span(name="model", start=0, end=90),
        Span(name="start", start=90, end=100, after=("pull", "model")),
    ]
    path = walk(spans, 0, 100)
    assert path.amounts() == {"model": 90, "start": 10}
    assert path.slack == {"pull": 40}
    assert drag(spans)["model"] == 40


def test_cp5_a_gap_is_a_wait():
    spans = chain(("prov", 0, 100), ("pull", 112, 200), ("start", 200, 210))
    assert walk(spans, 0, 210).amounts() == {"prov": 100, "wait:pull": 12, "pull": 88, "start": 10}


def test_cp6_skew_is_cut_and_told():
    path = walk(chain(("prov", 0, 100), ("pull", 100, 205), ("start", 200, 210)), 0, 210)
    assert path.amounts() == {"prov": 100, "pull": 100, "start": 10}
    assert path.overlaps == (("pull", "start"),)


def test_ov1_ledger_and_equal_shares():
    cells = ledger(BEFORE, 0, 525)
    assert cells == {
        frozenset({"pre"}): 120,
        frozenset({"pull", "model"}): 168,
        frozenset({"pull"}): 165,
        frozenset({"start"}): 72,
    }
    shares = equal_shares(cells)
    assert (shares["pull"], shares["model"]) == (249, 84)


def test_dr1_drag_does_not_sum_to_the_total():
    assert drag(BEFORE) == {"pre": 120, "pull": 165, "model": 0, "start": 72}


def test_nothing_observed_is_unattributed():
    assert walk([], 0, 10).amounts() == {"unattributed": 10}
    assert walk(chain(("a", 4, 8)), 0, 10).amounts() == {"unattributed": 6, "a": 4}


@st.composite
def span_graphs(draw):
    count = draw(st.integers(0, 6))
    spans = []
    for i in range(count):
        start = draw(st.integers(-5, 50))
        after = tuple(f"s{j}" for j in range(i) if draw(st.booleans()))
        spans.append(Span(name=f"s{i}", start=start, end=start + draw(st.integers(0, 30)), after=after))
    begin = draw(st.integers(-10, 20))
    return spans, begin, begin + draw(st.integers(0, 80))


@given(span_graphs(), st.integers(-1000, 1000))
def test_walk_sums_exactly_is_non_negative_and_shifts_with_time(graph, shift):
    spans, begin, end = graph
    path = walk(spans, begin, end)
    assert sum(path.amounts().values()) == end - begin
    assert all(start < stop for _, start, stop in path.parts)
    moved = [Span(name=s.name, start=s.start + shift, end=s.end + shift, after=s.after) for s in spans]
    assert walk(moved, begin + shift, end + shift).amounts() == path.amounts()
    assert walk(list(reversed(spans)), begin, end).amounts() == path.amounts()
    assert sum(ledger(spans, begin, end).values()) == end - begin


@st.composite
def causal_graphs(draw):
    """Spans that begin after all they wait for; no two end together, so that no tie decides."""
    spans, ends = [], {}
    for i in range(draw(st.integers(1, 6))):
        after = tuple(f"s{j}" for j in range(i) if draw(st.booleans()))
        start = max((ends[name] for name in after), default=0) + 7 * draw(st.integers(0, 3))
        end = start + 7 * draw(st.integers(2, 9)) + i
        spans.append(Span(name=f"s{i}", start=start, end=end, after=after))
        ends[f"s{i}"] = end
    assume(len(set(ends.values())) == len(ends))
    return spans


@given(causal_graphs(), st.integers(1, 13), st.integers(0, 5))
def test_splitting_a_span_in_series_moves_no_time(spans, cut, which):
    whole = spans[which % len(spans)]
    at, end = whole.start + cut, max(span.end for span in spans)
    first = Span(name=f"{whole.name}'", start=whole.start, end=at, after=whole.after)
    second = Span(name=whole.name, start=at, end=whole.end, after=(first.name,))
    split = [span for span in spans if span is not whole] + [first, second]
    before = walk(spans, 0, end).amounts()
    after = walk(split, 0, end).amounts()
    for half, name in ((first.name, whole.name), (f"wait:{first.name}", f"wait:{whole.name}")):
        if half in after:
            after[name] = after.get(name, 0) + after.pop(half)
    assert after == before


@given(causal_graphs(), st.integers(1, 50), st.integers(0, 5))
def test_lengthening_the_last_span_lengthens_the_total_by_as_much(spans, more, which):
    last = max(spans, key=lambda span: span.end)
    longer = [
        span if span is not last else Span(name=last.name, start=last.start, end=last.end + more, after=last.after)
        for span in spans
    ]
    before, after = walk(spans, 0, last.end).amounts(), walk(longer, 0, last.end + more).amounts()
    assert after == before | {last.name: before.get(last.name, 0) + more}


def ic1(b=(20, 40), c=(25, 30)):
    network = Network("abcd")
    for left, right in ("ab", "bc", "cd"):
        network.in_order(left, right)
    network.within("a", 0, 0, "clock")
    network.within("d", 60, 60, "clock")
    network.within("b", *b, "poller b")
    network.within("c", *c, "poller c")
    return network


def test_ic1_closure():
    network = ic1()
    assert network.bounds("b") == (20, 30)
    assert network.difference("a", "b") == (20, 30)
    assert network.difference("b", "c") == (0, 10)
    assert network.difference("c", "d") == (30, 35)


def test_ic2_overlapping_intervals():
    assert ic1(b=(20, 30), c=(25, 35)).difference("b", "c") == (0, 15)


def test_ic3_contradiction_names_both_sources_and_leaves_the_network_as_it_was():
    network = Network("bc")
    network.in_order("b", "c")
    network.within("b", 40, 50, "poller b")
    with pytest.raises(ContradictionError) as caught:
        network.within("c", 20, 30, "poller c")
    assert {"poller b", "poller c"} <= caught.value.sources
    assert caught.value.excess_us == 10
    assert network.bounds("c") == (40, None)


@given(
    st.lists(st.integers(0, 100), min_size=2, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20), st.integers(0, 20)), max_size=12),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 9), st.integers(0, 9)), max_size=6),
    st.randoms(use_true_random=False),
)
def test_closure_always_holds_the_truth_and_ignores_order(truth, intervals, lengths, random):
    truth = sorted(truth)
    names = [f"v{i}" for i in range(len(truth))]
    facts = [("order", i, i + 1, 0, 0) for i in range(len(truth) - 1)]
    facts += [("within", i % len(truth), 0, low, high) for i, low, high in intervals]
    facts += [("apart", i % len(truth), j % len(truth), low, high) for i, j, low, high in lengths]

    def build(ordered):
        network = Network(names)
        for kind, i, j, low, high in ordered:
            if kind == "order":
                network.in_order(names[i], names[j])
            elif kind == "within":
                network.within(names[i], truth[i] - low, truth[i] + high, "interval")
            else:
                gap = truth[j] - truth[i]
                network.apart(names[i], names[j], gap - low, gap + high, "length")
        return network

    network = build(facts)
    for i, name in enumerate(names):
        low, high = network.bounds(name)
        assert low is None or low <= truth[i]
        assert high is None or truth[i] <= high
        for j, other in enumerate(names):
            low, high = network.difference(name, other)
            assert low is None or low <= truth[j] - truth[i]
            assert high is None or truth[j] - truth[i] <= high
    shuffled = facts[:]
    random.shuffle(shuffled)
    again = build(shuffled)
    assert all(again.bounds(name) == network.bounds(name) for name in names)


def test_ts1_telescoping():
    split = telescope(group_before=333, download_before=168, download_after=77, rest_before=192, rest_after=181)
    assert split == Split(structural=165, relief=91, rest=11)


def test_shapley_range_of_the_published_case():
    found = shapley_range(pull=333, download_before=168, download_after=77)
    assert found is not None
    assert (found.elimination, found.relief) == ((172, 210.5), (45.5, 84))
    assert shapley_range(pull=100, download_before=168, download_after=77) is None
