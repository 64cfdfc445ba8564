"""What each request says, the same for the same row and seed: made-up text of the recorded length, or recorded text.

A trace holds lengths, so made-up text reproduces lengths and shared prefixes (`loadgen.lexicon` says how exactly).
Where `payload_ref` names recorded text and the scenario has a folder for it, that text is sent instead.
"""

from __future__ import annotations

import random
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from loadgen.images import image_url, parse_size
from loadgen.lexicon import BUILT_IN, Lexicon, tokenizer_lexicon
from loadgen.payloads import read_payload
from loadgen.plan import PlannedRequest
from loadgen.scenario import PromptsSection

_POOL_WORDS = 1 << 14
_OWN_WORDS = 8
"""So many first words tell two passages apart: the rest is taken from a common pool."""

_CACHED_BLOCKS = 512


class Passages:
    """Texts of an exact number of words, each of which is one token.

    >>> Passages(BUILT_IN, seed=0).passage("row", 7, 3) == Passages(BUILT_IN, seed=0).passage("row", 7, 3)
    True
    """

    def __init__(self, lexicon: Lexicon, *, seed: int) -> None:
        self._words = lexicon.words
        self._seed = seed
        rng = random.Random(seed)
        self._pool = [rng.choice(self._words) for _ in range(_POOL_WORDS)]
        self.block = lru_cache(_CACHED_BLOCKS)(self._block)

    def passage(self, kind: str, number: int, count: int) -> str:
        """Return `count` words that depend on (seed, kind, number) from the first on; fewer are the same, cut short."""
        digest = int.from_bytes(blake2b(f"{self._seed}:{kind}:{number}".encode(), digest_size=16).digest(), "big")
        start = digest % _POOL_WORDS
        words = []
        for _ in range(_OWN_WORDS):
            digest, place = divmod(digest, len(self._words))
            words.append(self._words[place])
        while len(words) < count:
            words += self._pool[start : start + count - len(words)]
            start = 0
        return " ".join(words[:count])

    def _block(self, number: int, count: int) -> str:
        return self.passage("block", number, count)


class Prompts:
    """Makes the prompts of a run. Called ahead of time in a native thread, for one slice of rows after another."""

    def __init__(self, section: PromptsSection, *, seed: int) -> None:
        lexicon = tokenizer_lexicon(section.tokenizer) if section.tokenizer else BUILT_IN
        self._lead = lexicon.lead
        self._passages = Passages(lexicon, seed=seed)
        self._seed = seed
        self._overhead = section.overhead_tokens
        self._payloads = section.payloads
        self._size = parse_size(section.image_size) if section.image_size else None

    def text(self, request: PlannedRequest) -> str:
        """Return the prompt as one text.

        Rows whose `prefix_blocks` begin alike begin with the same tokens, so that a server's prefix cache meets the
        reuse that the recorded traffic would have given it; the rest is the row's own from its first token on.
        """
        recorded = self._recorded(request)
        if recorded is None:
            return self._made_up(request)
        if isinstance(recorded, str):
            return recorded
        return "\n".join(_text_of(message) for message in recorded)

    def messages(self, request: PlannedRequest) -> list[dict[str, Any]]:
        """Return the prompt as chat messages, with the row's images where the scenario gives them a size."""
        recorded = self._recorded(request)
        if isinstance(recorded, list):
            return recorded
        content: str | list[dict[str, Any]] = self._made_up(request) if recorded is None else recorded
        if self._size is not None and request.images:
            urls = (image_url(f"{self._seed}:{request.row_id}:{i}", self._size) for i in range(request.images))
            parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
            content = [*parts, {"type": "text", "text": content}]
        return [{"role": "user", "content": content}]

    def _recorded(self, request: PlannedRequest) -> str | list[dict[str, Any]] | None:
        if self._payloads is None or request.payload_ref is None:
            return None
        return read_payload(self._payloads, request.payload_ref, request.row_id)

    def _made_up(self, request: PlannedRequest) -> str:
        left = max(1, request.input_tokens - self._overhead)
        pieces: list[str] = []
        if request.block_tokens:
            for block in request.prefix_blocks:
                count = min(left, request.block_tokens)
                pieces.append(self._passages.block(block, count))
                left -= count
                if not left:
                    break
        if left:
            pieces.append(self._passages.passage("row", request.row_id, left))
        return self._lead + " ".join(pieces)


def _text_of(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
