"""The grammar of thresholds: what is written reads back as the same tree, and an error points at what is wrong.

The grammar is said here a second time, as the list of all its sentences, so that where a text stops being the beginning
of one is known without the parser.
"""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from traces.errors import BadInputError
from traces.thresholds import COUNTED, REQUESTS, SPANS, STATS, Quantity, Threshold, parse_threshold

TIME_UNITS = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}
SIGNS = ("<", "<=", ">", ">=")
NUMBER = "a number"

spans = st.lists(st.sampled_from(SPANS), min_size=1, max_size=4).map("+".join)
some_stat = st.sampled_from((None, *STATS))
of_spans = st.builds(Quantity, function=st.just("span"), name=spans, stat=some_stat)
of_requests = st.builds(
    Quantity, function=st.just("of_requests"), name=st.sampled_from(REQUESTS), stat=st.sampled_from(STATS)
).filter(lambda q: q.name != "lag" or q.stat in {"p50", "p99", "max"})
quantities = st.one_of(
    of_spans,
    of_requests,
    st.builds(Quantity, function=st.sampled_from(("lo", "hi", "share")), name=spans, stat=some_stat),
    st.builds(Quantity, function=st.just("requests"), name=st.sampled_from(COUNTED)),
    st.just(Quantity(function="count", name="scale_outs")),
    st.one_of(of_spans, of_requests).map(lambda of: Quantity(function="regression", name=of.name, stat=of.stat, of=of)),
)


def written(quantity: Quantity) -> str:
    """Return a quantity as people write it."""
    inner = quantity.name if quantity.stat is None else f"{quantity.name}.{quantity.stat}"
    match quantity.function:
        case "span":
            return inner
        case "of_requests":
            return f"{quantity.stat}({quantity.name})"
        case "requests":
            return f"{quantity.name}(requests)"
        case "count":
            return quantity.name
        case "regression":
            assert quantity.of is not None
            return f"regression({written(quantity.of)}, baseline)"
        case bound:
            return f"{bound}({inner})"


@st.composite
def trees(draw: st.DrawFn) -> tuple[str, Threshold]:
    """Return a threshold as written, and the tree that it has to become."""
    quantity, sign = draw(quantities), draw(st.sampled_from(SIGNS))
    whole, thousandths = draw(st.integers(0, 99_999)), draw(st.integers(0, 999))
    number = f"{whole}.{thousandths:03}" if thousandths else str(whole)
    exact = whole * 1_000 + thousandths
    if quantity.dimension == "time":
        unit = draw(st.sampled_from(sorted(TIME_UNITS)))
        limit = float(exact * TIME_UNITS[unit] // 1_000)
    else:
        unit = "%" if quantity.dimension == "share" else ""
        limit = float(number) / 100 if unit else float(number)
    text = f"{written(quantity)} {sign} {number}{unit}"
    return text, Threshold(text=text, quantity=quantity, sign=sign, limit=limit)


@given(trees())
def test_what_is_written_reads_back_as_the_same_tree(pair: tuple[str, Threshold]) -> None:
    text, tree = pair
    assert parse_threshold(text) == tree


Sentence = tuple[tuple[str, ...], ...]
"""What may stand at each place."""


def sentences() -> list[Sentence]:
    """Return every sentence, of up to four joined phases."""

    def with_stat(inside: tuple[str, ...]) -> list[Sentence]:
        found: list[Sentence] = []
        for joined in range(4):
            names: Sentence = (inside,) + ((("+",), inside) * joined)
            found += [names, (*names, (".",), STATS)]
        return found

    spanned = with_stat(SPANS)
    asked: list[Sentence] = [
        (STATS, ("(",), tuple(r for r in REQUESTS if r != "lag"), (")",)),
        (("p50", "p99", "max"), ("(",), ("lag",), (")",)),
    ]
    limit: dict[str, list[Sentence]] = {
        "time": [((NUMBER,), tuple(TIME_UNITS))],
        "share": [((NUMBER,), ("%",))],
        "count": [((NUMBER,),)],
    }
    heads: list[tuple[Sentence, str]] = [(head, "time") for head in spanned + asked]
    heads += [((("lo", "hi"), ("(",), *head, (")",)), "time") for head in spanned]
    heads += [((("share",), ("(",), *head, (")",)), "share") for head in spanned]
    heads += [((COUNTED, ("(",), ("requests",), (")",)), "share"), ((("scale_outs",),), "count")]
    heads += [((("regression",), ("(",), *head, (",",), ("baseline",), (")",)), "share") for head in spanned + asked]
    return [(*head, SIGNS, *tail) for head, dimension in heads for tail in limit[dimension]]


SENTENCES = sentences()
WORD = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|<=|>=|[<>().,+%]")


def allows(place: tuple[str, ...], token: str) -> bool:
    return token in place or (place == (NUMBER,) and token[0].isdigit())


def wrong_at(tokens: list[str]) -> int | None:
    """Return the place of the first token that no sentence has there (after the last where some miss), or None."""
    alive = SENTENCES
    for i, token in enumerate(tokens):
        after = [one for one in alive if len(one) > i and allows(one[i], token)]
        if not after:
            return i
        alive = after
    return None if any(len(one) == len(tokens) for one in alive) else len(tokens)


ODD = ("zzz", "7", "(", ")", ",", ".", "+", "%", "<", "baseline", "requests", "pull", "p95", "lag", "regression", "s")


@st.composite
def mutated(draw: st.DrawFn) -> list[str]:
    """Return the tokens of a threshold after one change: one left out, twice, put in, put in another's place, cut."""
    tokens = WORD.findall(draw(trees())[0])
    at = draw(st.integers(0, len(tokens) - 1))
    odd = draw(st.one_of(st.sampled_from(ODD), st.sampled_from((*SPANS, *STATS, *REQUESTS))))
    return draw(
        st.sampled_from(
            (
                tokens[:at] + tokens[at + 1 :],
                [*tokens[:at], tokens[at], *tokens[at:]],
                [*tokens[:at], odd, *tokens[at:]],
                [*tokens[:at], odd, *tokens[at + 1 :]],
                tokens[:at],
                [*tokens[: at - 1], tokens[at], tokens[at - 1], *tokens[at + 1 :]] if at else [*tokens, odd],
            )
        )
    )


def column_of_error(text: str) -> int | None:
    try:
        parse_threshold(text)
    except BadInputError as error:
        return str(error).split("\n")[2].index("^") - 2
    return None


@given(mutated(), st.data())
def test_an_error_points_at_the_first_word_that_cannot_stand_there(tokens: list[str], data: st.DataObject) -> None:
    columns, text = [], ""
    for token in tokens:
        text += " " * data.draw(st.integers(1, 3))
        columns.append(len(text))
        text += token
    wrong = wrong_at(tokens)
    if wrong is None:
        assert column_of_error(text) is None
        return
    end = len(text)
    if wrong and tokens[wrong - 1][0].isdigit() and unit_is_what_is_wrong(tokens, wrong):
        wrong -= 1  # Number and unit are one limit: the caret stands where it begins.
    assert column_of_error(text) == (columns[wrong] if wrong < len(tokens) else end)


def unit_is_what_is_wrong(tokens: list[str], wrong: int) -> bool:
    """Tell whether the place after a number is a unit's that is missing or another's."""
    if wrong_at(tokens[:wrong]) == wrong:
        return True  # Its unit is missing.
    # Complete without one: what follows was taken for a unit, unless it can be none.
    return wrong < len(tokens) and not tokens[wrong][0].isdigit() and tokens[wrong] not in {"(", ")"}


@given(trees(), st.data(), st.sampled_from("?$#@!\"'*/\\&|^~`[]{};:=-é\x00\x1b…"))
@example(("pull < 1s", None), None, "?")
def test_a_character_that_means_nothing_is_pointed_at(pair, data, odd: str) -> None:
    text = pair[0]
    at = len(text) if data is None else data.draw(st.integers(0, len(text)))
    broken = text[:at] + odd + text[at:]
    # "<=" put together or taken apart by what was put in is no character without a meaning.
    assume(not (odd == "=" and at and text[at - 1] in "<>"))
    assert column_of_error(broken) == at


def test_the_sentences_are_those_of_the_parser() -> None:
    for sentence in SENTENCES:
        for pick in (0, -1):
            tokens = ["7" if place == (NUMBER,) else place[pick] for place in sentence]
            assert column_of_error(" ".join(tokens)) is None, tokens


@pytest.mark.parametrize("unit", [*TIME_UNITS, "%", ""])
def test_each_quantity_takes_the_units_of_its_dimension(unit: str) -> None:
    for text, fits in (("pull", unit in TIME_UNITS), ("share(pull)", unit == "%"), ("scale_outs", unit == "")):
        assert (column_of_error(f"{text} < 3{unit}") is None) == fits, (text, unit)


def test_longest_joined_phases() -> None:
    joined = "+".join(itertools.islice(itertools.cycle(SPANS), 200))
    assert parse_threshold(f"{joined} < 1s").quantity.name == joined
