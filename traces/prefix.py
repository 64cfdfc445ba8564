"""How much of the prompts an unlimited prefix cache could have served."""

from __future__ import annotations

import msgspec
import polars as pl


class PrefixReuse(msgspec.Struct, frozen=True, kw_only=True):
    """The reuse ceiling of a trace, over the rows that name their prefix blocks.

    A block is reused when it and all blocks before it in the prompt occurred in an earlier row. `block_share` counts
    blocks, `token_share` tokens (a last block that is not full counts as far as it goes; None when lengths are
    unknown).
    """

    rows: int
    blocks: int
    distinct_blocks: int
    block_share: float
    token_share: float | None


class PrefixCounter:
    """Adds up reuse row by row; its memory grows with distinct blocks."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._rows = self._blocks = self._reused = self._tokens = self._reused_tokens = 0

    def add(self, batch: pl.DataFrame) -> None:
        """Count the rows of one batch, in order of arrival."""
        known = batch.filter(pl.col("prefix_blocks").is_not_null())
        columns = (known["prefix_blocks"].to_list(), known["block_tokens"], known["input_tokens"])
        for blocks, block_tokens, input_tokens in zip(*columns, strict=True):
            hit = 0
            for block in blocks:
                if block not in self._seen:
                    break
                hit += 1
            self._seen.update(blocks)
            self._rows += 1
            self._blocks += len(blocks)
            self._reused += hit
            if block_tokens is not None and input_tokens is not None:
                self._tokens += input_tokens
                self._reused_tokens += min(hit * block_tokens, input_tokens)

    def result(self) -> PrefixReuse | None:
        """Return the ceiling; None when no row names a block."""
        if not self._blocks:
            return None
        return PrefixReuse(
            rows=self._rows,
            blocks=self._blocks,
            distinct_blocks=len(self._seen),
            block_share=self._reused / self._blocks,
            token_share=self._reused_tokens / self._tokens if self._tokens else None,
        )
