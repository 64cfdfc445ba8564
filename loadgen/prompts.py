"""Prompt texts of a wanted length, the same for the same row and seed.

Four characters stand for one token. On plain English words the tokenisers in use take between about 3.5 and 5
characters per token, so the true length may differ by up to a quarter; the server's own count is recorded beside the
planned one. Recorded texts are not known (a trace holds lengths), so only lengths and shared prefixes are reproduced.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

CHARACTERS_PER_TOKEN = 4

_POOL_CHARACTERS = 1 << 16
_WORDS = (
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work government number night point home water room mother "
    "area money story fact month lot right study book eye job word business issue side kind head house service friend "
    "father power hour game line end member law car city community name president team minute idea body information "
    "back parent face others level office door health person art war history party result change morning reason "
    "research girl guy moment air teacher force education"
)


@lru_cache(maxsize=4)
def _pool(seed: int) -> str:
    rng = random.Random(seed)
    choices = _WORDS.split()
    words: list[str] = []
    length = 0
    while length < _POOL_CHARACTERS:
        word = rng.choice(choices)
        words.append(word)
        length += len(word) + 1
    return " ".join(words)[:_POOL_CHARACTERS]


def _passage(seed: int, kind: str, number: int, characters: int) -> str:
    """Return `characters` characters that depend on (seed, kind, number) from their first word on."""
    digest = blake2b(f"{seed}:{kind}:{number}".encode(), digest_size=8).hexdigest()
    pool = _pool(seed)
    start = int(digest, 16) % len(pool)
    text = f"{digest} {pool[start:]}"
    while len(text) < characters:
        text += pool
    return text[:characters]


@lru_cache(maxsize=512)
def _block(seed: int, block: int, characters: int) -> str:
    return _passage(seed, "block", block, characters)


def prompt_text(
    row_id: int,
    input_tokens: int,
    *,
    seed: int,
    prefix_blocks: Sequence[int] = (),
    block_tokens: int | None = None,
) -> str:
    """Return a prompt of about `input_tokens` tokens: exactly `CHARACTERS_PER_TOKEN` characters for each.

    Rows whose `prefix_blocks` begin alike begin with the same text, so that a server's prefix cache meets the hits
    that the recorded traffic would have given it; the rest is the row's own from its first word on.

    >>> prompt_text(7, 3, seed=0) == prompt_text(7, 3, seed=0), len(prompt_text(7, 3, seed=0))
    (True, 12)
    """
    wanted = input_tokens * CHARACTERS_PER_TOKEN
    pieces: list[str] = []
    length = 0
    if block_tokens:
        for block in prefix_blocks:
            if length >= wanted:
                break
            pieces.append(_block(seed, block, block_tokens * CHARACTERS_PER_TOKEN))
            length += len(pieces[-1])
    if length < wanted:
        pieces.append(_passage(seed, "row", row_id, wanted - length))
    return "".join(pieces)[:wanted]
