"""Drafts drawn as they are looked at, so that enumerating them skips what a rule never asks for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, overload

import numpy as np

from draftwise.models.tabular import TabularModel
from draftwise.randomness import Randomness, Streams
from draftwise.sampling import SamplingParams, adjusted_probs
from draftwise.types import Draft, Probs
from draftwise.verification import Rule
from tests.enumeration import Law, Tokens, enumerate_outcomes

CHAIN = (-1, 0, 1)
TWO_BY_TWO = (-1, -1, 0, 0, 1, 1)
THREE_TWO_ONE = (-1, -1, -1, 0, 0, 3)  # three, two and one at the three depths
SAMPLED = SamplingParams(1.0)


def branching(*widths: int) -> tuple[int, ...]:
    """The parents of a tree each of whose tokens at a depth has as many children."""
    parents: list[int] = []
    level = [-1]
    for width in widths:
        first = len(parents)
        parents += [node for node, _ in product(level, range(width))]
        level = list(range(first, len(parents)))
    return tuple(parents)


class Lazily(Sequence[Any]):
    """A sequence whose items are made when first asked for."""

    def __init__(self, size: int, make: Callable[[int], Any]) -> None:
        self._items: dict[int, Any] = {}
        self._size, self._make = size, make

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(self._size)[index]]
        if not 0 <= index < self._size:
            raise IndexError(index)
        if index not in self._items:
            self._items[index] = self._make(index)
        return self._items[index]


@dataclass(frozen=True)
class Setting:
    """A target, a draft model, and how a tree of draft tokens is drawn from it after a text."""

    target: TabularModel
    draft_model: TabularModel
    parents: tuple[int, ...] | None = CHAIN
    replacement: bool = False
    prompt: Tokens = (0, 1)
    sampling: SamplingParams = SAMPLED

    @classmethod
    def random(cls, seed: int, vocab_size: int = 3, **options: Any) -> "Setting":
        target, draft = (TabularModel.random(vocab_size, 2, 2 * seed + i, scale=1.2) for i in (0, 1))
        return cls(target, draft, **options)

    @property
    def depth(self) -> int:
        depths = [0]
        for parent in self.parents or ():
            depths.append(depths[parent + 1] + 1)
        return max(depths)

    def draft(self, randomness: Randomness) -> Draft:
        """Draw a draft, each token when it is first looked at, after the siblings before it."""
        parents = self.parents or ()
        shape = Draft((0,) * len(parents), None, parents).children()

        def make(index: int) -> tuple[int, Probs]:
            siblings = shape[parents[index] + 1]
            earlier = [nodes[other][0] for other in siblings[: siblings.index(index)]]
            probs = self.next_probs(self.draft_model, self._path(nodes, index)).copy()
            if not self.replacement:
                probs[earlier] = 0
                if not probs.any():  # any other distribution will do
                    probs = np.ones(len(probs))
                probs /= probs.sum()
            return randomness.sample(probs), probs

        nodes = Lazily(len(parents), make)
        token_ids = Lazily(len(parents), lambda index: nodes[index][0])
        return Draft(token_ids, Lazily(len(parents), lambda index: nodes[index][1]), parents)  # type: ignore[arg-type]

    def target_probs(self, draft: Draft) -> Sequence[Probs]:
        def make(index: int) -> Probs:
            path = self._path(draft.token_ids, index - 1)
            return self.next_probs(self.target, [*path, draft.token_ids[index - 1]] if index else [])

        return Lazily(len(draft) + 1, make)

    def _path(self, nodes: Sequence[Any], index: int) -> list[int]:
        """The tokens before a node of the tree."""
        path: list[int] = []
        parents = self.parents or ()
        while index >= 0 and (index := parents[index]) >= 0:
            node = nodes[index]
            path.insert(0, node if isinstance(node, int) else node[0])
        return path

    def next_probs(self, model: TabularModel, path: Sequence[int]) -> Probs:
        known = [min(token_id, model.vocab_size - 1) for token_id in (*self.prompt, *path)]
        return adjusted_probs(model.logits_after(known), self.sampling)


def emissions(setting: Setting, rule: Rule) -> Law:
    """The exact law of what one step emits."""

    def run(streams: Streams) -> Tokens:
        draft = setting.draft(streams.drafting)
        verdict = rule(draft, setting.target_probs(draft), streams.acceptance, streams.recovery)
        return (*(draft.token_ids[index] for index in verdict.path), verdict.token_id)

    return enumerate_outcomes(run)


def completed(setting: Setting, rule: Rule) -> Law:
    """The law of as many tokens as a step can emit, those after the step being the target's own."""
    law: Law = {}
    for emitted, probability in emissions(setting, rule).items():
        texts = {emitted: probability}
        while len(next(iter(texts))) <= setting.depth:
            texts = {
                (*text, token_id): mass * p
                for text, mass in texts.items()
                for token_id, p in enumerate(setting.next_probs(setting.target, text).tolist())
                if p > 0
            }
        for text, mass in texts.items():
            law[text] = law.get(text, 0.0) + mass
    return law


def expected_accepted(setting: Setting, rule: Rule) -> float:
    """The exact expectation of how many draft tokens one step accepts."""
    return sum((len(emitted) - 1) * mass for emitted, mass in emissions(setting, rule).items())
