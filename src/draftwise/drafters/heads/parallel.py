"""Heads that each guess one position, all from the hidden state that the output layer read last."""

from collections.abc import Sequence
from typing import Protocol

import torch

from draftwise.drafters.growth import Shape
from draftwise.drafters.heads.block import BlockState
from draftwise.types import Source, Step

FINAL = -1  # the hidden state that the output layer reads


class ParallelHeads(Protocol):
    """A head for each position of a draft."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """`[rows, width]` of the last token that the target read to `[rows, positions, vocabulary]`.

        The first position is that after the token which the target has emitted and not read.
        """
        ...


class ParallelState(BlockState):
    """The last hidden state of each row; drafts are the likeliest token of each head, or trees of them."""

    def __init__(self, heads: ParallelHeads, num_sequences: int, tree: Shape | None) -> None:
        super().__init__((FINAL,), num_sequences, tree)
        self._heads = heads
        self._last: dict[int, torch.Tensor] = {}

    def begin(self, row: int, source: Source | None) -> None:
        super().begin(row, source)
        self._last.pop(row, None)

    def _is_ready(self, row: int, context: Sequence[int]) -> bool:
        return row in self._last and len(context) == self._features.num_read(row) + 1

    def _logits(self, rows: Sequence[int], contexts: Sequence[Sequence[int]]) -> torch.Tensor:
        return self._heads.logits(torch.stack([self._last[row] for row in rows]))

    def observe(self, step: Step) -> None:
        super().observe(step)
        self._last[step.row] = self._features.take(step.row)[-1]

    def close(self) -> None:
        self._last.clear()
