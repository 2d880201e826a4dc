"""A smaller language model guesses a tree: several tokens for a position, and what follows each of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from draftwise.checks import of_kind
from draftwise.control.base import Limit
from draftwise.drafters.ahead import likelihood
from draftwise.drafters.draft_model import refuse_stranger
from draftwise.drafters.growth import ROOT, DynamicTree, Growth, Shape, Tree
from draftwise.errors import OptionError
from draftwise.models.base import LanguageModel, ModelState, Tap, refuse_no_model, refuse_no_trees
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler
from draftwise.types import Draft, Logits, Source, Step


class TreeDraftModel:
    """A language model that shares the target's tokenizer and drafts a tree.

    `shape`: how the tree grows; None is a `DynamicTree`. `sampled`: whether siblings are drawn from the draft
    model without replacement, where the row is not greedy; else they are its likeliest tokens. Raises
    OptionError for a dynamic tree of drawn tokens, which would be left out for their value.
    """

    def __init__(
        self,
        model: LanguageModel,
        shape: Shape | None = None,
        *,
        sampled: bool = False,
        name: str | None = None,
    ) -> None:
        self.shape = shape or DynamicTree()
        of_kind("shape", self.shape, Shape, "a StaticTree or a DynamicTree")
        if sampled and isinstance(self.shape, DynamicTree):
            raise OptionError(
                "a dynamic tree leaves out guesses for their value; give a StaticTree to sample."
            )
        refuse_no_model("model", model)
        self.model = model
        self.sampled = sampled
        self.name = name or f"{model.name} tree"
        self.default_num_draft_tokens = self.shape.num_draft_tokens

    def open(self, target: LanguageModel, num_sequences: int, max_length: int) -> "TreeDraftState":
        """Start drafting for `target`.

        Raises TokenizerMismatchError as `DraftModel.open` does, and UnsupportedError where the target or the
        draft model cannot score trees.
        """
        for model in (target, self.model):
            refuse_no_trees(model)
        refuse_stranger(self.name, self.model, target)
        capacity = min(max_length + self.shape.most_fed, self.model.max_length)
        cache = self.model.open(num_sequences, capacity, width_invariant=False)
        return TreeDraftState(self, cache, capacity, target.vocab_size)


@dataclass(frozen=True, slots=True)
class _Growing:
    """The tree of one row, and the nodes after which it goes on."""

    tree: Tree
    growth: Growth
    nodes: Sequence[int]


class TreeDraftState:
    """A cache of the draft model that holds each row's context between drafts.

    A tree grows depth by depth, each in one pass of the draft model over all rows. Where a context has
    outgrown the draft model, its drafts are empty.
    """

    taps: Sequence[Tap] = ()

    def __init__(
        self, drafter: TreeDraftModel, cache: ModelState, capacity: int, target_vocab_size: int
    ) -> None:
        self._drafter = drafter
        self._cache = cache
        self._capacity = capacity
        self._target_vocab_size = target_vocab_size

    def begin(self, row: int, source: Source | None) -> None:
        self._cache.begin(row, source)

    def confidence(self, row: int, context: Sequence[int]) -> float | None:
        return None if len(context) <= self._capacity else 0.0

    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[Limit],
        samplers: Sequence[Sampler],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        drafts = [Draft()] * len(contexts)
        growing: dict[int, _Growing] = {}
        for row, context in enumerate(contexts):
            if len(context) <= self._capacity and limits[row].allows(0):
                draws = self._drafter.sampled and samplers[row].params.temperature > 0
                tree = Tree(randomness[row] if draws else None)
                growth = self._drafter.shape.grow(tree, limits[row])
                growing[row] = _Growing(tree, growth, next(growth))
        while growing:
            logits = self._pass(contexts, growing)
            for row, grown in list(growing.items()):
                try:
                    nodes = grown.growth.send(
                        [
                            likelihood(
                                each[: self._target_vocab_size],
                                samplers[row].after(grown.tree.path_to(node)),
                            )
                            for node, each in zip(grown.nodes, logits[row], strict=True)
                        ]
                    )
                    if len(contexts[row]) + len(grown.tree.lineage(nodes)) > self._capacity:
                        grown.growth.send([])
                    growing[row] = _Growing(grown.tree, grown.growth, nodes)
                except StopIteration as end:
                    drafts[row] = end.value
                    del growing[row]
        return drafts

    def _pass(self, contexts: Sequence[Sequence[int]], growing: dict[int, _Growing]) -> list[Logits]:
        """Score the nodes after which each tree goes on; the cache then holds the contexts and no more."""
        feeds: list[list[int]] = [[] for _ in contexts]
        parents: list[list[int] | None] = [None] * len(contexts)
        for row, grown in growing.items():
            if list(grown.nodes) == [ROOT]:
                # One token is always fed, for its logits.
                self._cache.keep(row, min(self._cache.lengths[row], len(contexts[row]) - 1))
                tokens = contexts[row][self._cache.lengths[row] :]
            else:
                fed = grown.tree.lineage(grown.nodes)
                place = {ROOT: ROOT, **{node: index for index, node in enumerate(fed)}}
                tokens = [grown.tree.token_ids[node] for node in fed]
                parents[row] = [place[grown.tree.parents[node]] for node in fed]
            # What lies beyond this model's vocabulary is read as its last token: a worse guess, still exact.
            feeds[row] = [min(token_id, self._drafter.model.vocab_size - 1) for token_id in tokens]
        num_logits = [len(growing[row].nodes) if row in growing else 0 for row in range(len(contexts))]
        logits = self._cache.forward(feeds, num_logits, parents)
        for row in growing:
            self._cache.keep(row, len(contexts[row]))
        return logits

    def observe(self, step: Step) -> None:
        """Nothing to learn: the contexts say what was accepted."""

    def close(self) -> None:
        self._cache.close()
