"""Conversations and shared prefixes for synthetic arrivals: pure and seeded."""

from __future__ import annotations

import math
from random import Random
from typing import Final

import msgspec
import polars as pl

from traces.readers.base import TRACE_COLUMNS
from traces.units import US_PER_MS

_ANSWER_US_PER_TOKEN: Final = 20 * US_PER_MS
"""How long an answer is taken to last when the next turn is placed: 50 tokens per second."""


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """How conversations go: turns are geometric with this mean, think times exponential. Mean 1 is single requests."""

    mean_turns: float = 1.0
    mean_think_us: int = 0


class Prefixes(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts in blocks. Each conversation begins with one of `groups` system prompts of `shared_tokens`.

    The k-th group is taken in proportion to 1/k. Without groups nothing is shared between conversations.
    """

    block_tokens: int
    groups: int = 0
    shared_tokens: int = 0


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the arrival process and the lengths give it: the first turn of a conversation."""

    arrival_us: int
    input_tokens: int | None
    output_tokens: int | None


def converse(
    openings: list[Opening], talk: Talk, prefixes: Prefixes | None, *, length_us: int, seed: int
) -> pl.DataFrame:
    """Return the trace that the openings lead to (`traces.schema.Trace`), in order of arrival.

    A turn comes a think time after the answer before it (at 50 tokens per second), asks a question as long as the
    opening's, and its prompt repeats the conversation so far. Turns after `length_us` are left out.
    """
    draw = Random(f"{seed}/conversations")
    blocks = None if prefixes is None else _Blocks(prefixes, Random(f"{seed}/prefixes"))
    rows: list[dict[str, object]] = []
    for number, opening in enumerate(openings):
        rows += _conversation(opening, number, talk, blocks, draw=draw, length_us=length_us)
    order = sorted(range(len(rows)), key=lambda i: rows[i]["arrival_us"])  # type: ignore[arg-type, return-value]
    place = {old: new for new, old in enumerate(order)}
    first_us = rows[order[0]]["arrival_us"] if rows else 0
    ordered = [rows[old] for old in order]
    for new, row in enumerate(ordered):
        row["row_id"] = new
        row["arrival_us"] = row["arrival_us"] - first_us  # type: ignore[operator]
        steps_back = row.pop("_back")
        row["parent_row"] = None if steps_back is None else place[order[new] - 1]
    return pl.DataFrame({name: [row.get(name) for row in ordered] for name in TRACE_COLUMNS}, schema=TRACE_COLUMNS)


def _conversation(
    opening: Opening, number: int, talk: Talk, blocks: _Blocks | None, *, draw: Random, length_us: int
) -> list[dict[str, object]]:
    several = talk.mean_turns > 1
    turns = _geometric(talk.mean_turns, draw) if several else 1
    history, at_us, think_us = 0, opening.arrival_us, 0
    chain = None if blocks is None else blocks.begin()
    rows: list[dict[str, object]] = []
    for turn in range(turns):
        if turn:
            think_us = round(-math.log(draw.random() or 2.0**-54) * talk.mean_think_us)
            at_us += (opening.output_tokens or 0) * _ANSWER_US_PER_TOKEN + think_us
            if at_us > length_us:
                break
        asked = None if opening.input_tokens is None else history + opening.input_tokens
        row: dict[str, object] = {
            "arrival_us": at_us,
            "input_tokens": asked,
            "output_tokens": opening.output_tokens,
            "_back": 1 if turn else None,
        }
        if several:
            row |= {"session_id": f"s{number}", "turn": turn, "think_us": think_us if turn else None}
        if blocks is not None and chain is not None and asked is not None:
            row |= {"prefix_blocks": blocks.of(chain, asked), "block_tokens": blocks.block_tokens}
        rows.append(row)
        history = (asked or 0) + (opening.output_tokens or 0)
    return rows


class _Blocks:
    """Numbers the blocks of prompts. A whole block keeps its number while the conversation grows behind it."""

    def __init__(self, prefixes: Prefixes, draw: Random) -> None:
        self.block_tokens = prefixes.block_tokens
        self._draw = draw
        per_group = prefixes.shared_tokens // prefixes.block_tokens
        self._groups = [list(range(g * per_group, (g + 1) * per_group)) for g in range(prefixes.groups)]
        self._next = prefixes.groups * per_group
        weights = [1 / (k + 1) for k in range(prefixes.groups)]
        self._upto = [sum(weights[: k + 1]) / sum(weights) for k in range(prefixes.groups)]

    def begin(self) -> list[int]:
        """Return a conversation's chain of whole blocks: its system prompt, if there are any."""
        if not self._groups:
            return []
        at = self._draw.random()
        return list(next(group for group, upto in zip(self._groups, self._upto, strict=True) if at <= upto))

    def of(self, chain: list[int], tokens: int) -> list[int]:
        """Return the blocks of a prompt of `tokens`; lengthens the chain by the whole ones."""
        whole, rest = divmod(tokens, self.block_tokens)
        while len(chain) < whole:
            chain.append(self._take())
        # A block that is not full is another one once it is continued.
        return chain[:whole] + ([self._take()] if rest else [])

    def _take(self) -> int:
        self._next += 1
        return self._next - 1


def _geometric(mean: float, draw: Random) -> int:
    return 1 + int(math.log(draw.random() or 2.0**-54) / math.log(1 - 1 / mean))
