"""Trees from heads that draft one token after another (EAGLE-2, 2406.16858)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from draftwise.control.base import Limit
from draftwise.drafters.ahead import likelihood
from draftwise.drafters.growth import ROOT, Growth, Shape, Tree
from draftwise.drafters.heads.autoregressive import AutoregressiveState, FeatureHead
from draftwise.drafters.heads.drafter import on_host
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler
from draftwise.types import Draft


@dataclass(slots=True)
class _Growing:
    """The tree of one row, the nodes after which it goes on, and what the head made of each node so far."""

    tree: Tree
    growth: Growth
    nodes: Sequence[int]
    hidden: dict[int, torch.Tensor]


class TreeState(AutoregressiveState):
    """Grows trees of likely tokens, depth by depth, each in one pass of the head over all rows."""

    def __init__(
        self, head: FeatureHead, num_sequences: int, max_length: int, device: torch.device, shape: Shape
    ) -> None:
        super().__init__(head, num_sequences, max_length + shape.most_fed, device)
        self._shape = shape

    @torch.inference_mode()
    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[Limit],
        samplers: Sequence[Sampler],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        drafts = [Draft()] * len(contexts)
        growing: dict[int, _Growing] = {}
        for row, last in enumerate(self._read(contexts, limits)):
            if last is not None:
                tree = Tree()
                growth = self._shape.grow(tree, limits[row])
                growing[row] = _Growing(tree, growth, next(growth), {ROOT: last[0]})
        while growing:
            asked = [grown.hidden[node] for grown in growing.values() for node in grown.nodes]
            logits = iter(on_host(self._head.logits(torch.stack(asked))))
            for row, grown in list(growing.items()):
                aheads = [
                    likelihood(next(logits), samplers[row].after(grown.tree.path_to(node)))
                    for node in grown.nodes
                ]
                try:
                    grown.nodes = grown.growth.send(aheads)
                except StopIteration as end:
                    drafts[row] = end.value
                    del growing[row]
            self._feed_nodes(growing, len(contexts))
        return drafts

    def _feed_nodes(self, growing: dict[int, _Growing], num_rows: int) -> None:
        """Feed the nodes after which each tree goes on, and those above them again; then forget them."""
        feeds: list[list[int]] = [[] for _ in range(num_rows)]
        parents: list[list[int] | None] = [None] * num_rows
        hidden: list[torch.Tensor | None] = [None] * num_rows
        self._forget_drafts()
        for row, grown in growing.items():
            tree, fed = grown.tree, grown.tree.lineage(grown.nodes)
            place = {ROOT: ROOT, **{node: index for index, node in enumerate(fed)}}
            feeds[row] = [tree.token_ids[node] for node in fed]
            parents[row] = [place[tree.parents[node]] for node in fed]
            hidden[row] = torch.stack([grown.hidden[tree.parents[node]] for node in fed])
        made = self._cache.forward(feeds, hidden, parents)
        for row, grown in growing.items():
            grown.hidden.update(zip(grown.nodes, made[row][-len(grown.nodes) :], strict=True))
        self._forget_drafts()


def open_state(
    head: FeatureHead, num_sequences: int, max_length: int, device: torch.device, tree: Shape | None
) -> AutoregressiveState:
    """A state that drafts trees of that shape, or chains."""
    if tree is None:
        return AutoregressiveState(head, num_sequences, max_length, device)
    return TreeState(head, num_sequences, max_length, device, tree)
