"""A whole block of guesses from one pass, a distribution for each position given the text alone."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache

import torch

from draftwise.control.base import Limit
from draftwise.drafters.ahead import Next, likelihood
from draftwise.drafters.growth import ROOT, Shape, Tree
from draftwise.drafters.heads.drafter import on_host
from draftwise.drafters.heads.state import HeadState
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler
from draftwise.types import Draft, Logits, Probs


class BlockState(HeadState, ABC):
    """Drafts from logits that one pass over all rows gives for all positions.

    `draws`: whether a chain of guesses is drawn from them, else it is the likeliest tokens.
    """

    draws = False

    def __init__(self, reads: tuple[int, ...], num_sequences: int, tree: Shape | None) -> None:
        super().__init__(reads, num_sequences)
        self._tree = tree

    @torch.inference_mode()
    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[Limit],
        samplers: Sequence[Sampler],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        drafts = [Draft()] * len(contexts)
        asked = self._asked(contexts, limits)
        if asked:
            logits = on_host(self._logits(asked, contexts))
            for row, ahead in zip(asked, logits, strict=True):
                drafts[row] = (
                    block_tree(ahead, self._tree, limits[row], samplers[row])
                    if self._tree
                    else block_draft(
                        ahead,
                        limits[row],
                        samplers[row] if self.draws else samplers[row].greedy(),
                        randomness[row],
                    )
                )
        return drafts

    @abstractmethod
    def _logits(self, rows: Sequence[int], contexts: Sequence[Sequence[int]]) -> torch.Tensor:
        """`[rows, positions, vocabulary]`, the first position that after a row's context."""


def block_draft(logits: Logits, limit: Limit, sampler: Sampler, randomness: Randomness) -> Draft:
    """Draw one token from each position of `logits` `[positions, vocabulary]`, as far as the limit allows.

    The logits depend on the text alone; what each token is drawn from depends on those before it where there
    are controls.
    """
    drafted: list[int] = []
    drawn_from: list[Probs] = []
    for position in logits:
        ahead = Next(position, sampler.after(drafted))
        if not (ahead.confidence and limit.allows(len(drafted), ahead.confidence)):
            break
        drafted.append(ahead.draw(randomness))
        if ahead.probs is not None:
            drawn_from.append(ahead.probs)
    return Draft(tuple(drafted), drawn_from or None)


def block_tree(logits: Logits, shape: Shape, limit: Limit, sampler: Sampler) -> Draft:
    """Grow a tree of the likeliest tokens at each position, whatever comes before (Medusa, 2401.10774)."""

    @cache  # without controls all samplers are one, and each position is looked at once
    def ahead(depth: int, sampler: Sampler) -> Probs:
        return likelihood(logits[depth], sampler)

    tree = Tree()
    growth = shape.grow(tree, limit)
    depths = {ROOT: 0}
    try:
        nodes = next(growth)
        while True:
            for node in range(len(depths) - 1, len(tree)):
                depths[node] = depths[tree.parents[node]] + 1
            nodes = growth.send(
                [
                    ahead(depths[node], sampler.after(tree.path_to(node)))
                    for node in nodes
                    if depths[node] < len(logits)
                ]
            )
    except StopIteration as end:
        draft: Draft = end.value
        return draft
