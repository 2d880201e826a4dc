"""Heads that each guess one position, all from the hidden state that the output layer read last."""

from collections.abc import Sequence
from typing import Protocol

import torch

from draftwise.control.base import Limit
from draftwise.drafters.growth import Shape
from draftwise.drafters.heads.block import block_draft, block_tree
from draftwise.drafters.heads.drafter import on_host
from draftwise.drafters.heads.features import Features
from draftwise.models.base import Tap
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler
from draftwise.types import Draft, Source, Step

FINAL = -1  # the hidden state that the output layer reads


class ParallelHeads(Protocol):
    """A head for each position of a draft."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """`[rows, width]` of the last token that the target read to `[rows, positions, vocabulary]`.

        The first position is that after the token which the target has emitted and not read.
        """
        ...


class ParallelState:
    """The last hidden state of each row; drafts are the likeliest token of each head, or trees of them."""

    def __init__(self, heads: ParallelHeads, num_sequences: int, tree: Shape | None) -> None:
        self._heads = heads
        self._tree = tree
        self._features = Features((FINAL,), num_sequences)
        self.taps: Sequence[Tap] = [self._features.tap]
        self._last: list[torch.Tensor | None] = [None] * num_sequences
        self._length = [0] * num_sequences  # of the text that the last hidden state is of

    def begin(self, row: int, source: Source | None) -> None:
        self._features.begin(row)
        self._last[row], self._length[row] = None, 0

    def confidence(self, row: int, context: Sequence[int]) -> float | None:
        return None if self._is_ready(row, context) else 0.0

    def _is_ready(self, row: int, context: Sequence[int]) -> bool:
        return self._last[row] is not None and len(context) == self._length[row] + 1

    @torch.inference_mode()
    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[Limit],
        samplers: Sequence[Sampler],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        drafts = [Draft()] * len(contexts)
        asked = [
            row
            for row, context in enumerate(contexts)
            if self._is_ready(row, context) and limits[row].allows(0)
        ]
        hidden = [last for row in asked if (last := self._last[row]) is not None]
        if hidden:
            logits = on_host(self._heads.logits(torch.stack(hidden)))
            for row, ahead in zip(asked, logits, strict=True):
                drafts[row] = (
                    block_tree(ahead, self._tree, limits[row], samplers[row])
                    if self._tree
                    else block_draft(ahead, limits[row], samplers[row].greedy(), randomness[row])
                )
        return drafts

    def observe(self, step: Step) -> None:
        self._features.observe(step)
        self._last[step.row] = self._features.take(step.row)[-1]
        self._length[step.row] = self._features.num_read(step.row)

    def close(self) -> None:
        self._last = [None] * len(self._last)
