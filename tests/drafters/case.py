"""A drafter to test, and the target that it is made for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from draftwise.drafters.base import Drafter
from draftwise.models.base import LanguageModel
from draftwise.types import Draft, Logits


@dataclass(frozen=True)
class Case:
    """A drafter to test, made for a target.

    `says`: the logits `[vocabulary]` after a context and drafted tokens that follow it, from scratch; None
    for a deterministic drafter. `tolerance`: by which probabilities that should be the same may differ.
    `is_exact`: whether they are exact enough to be enumerated.
    """

    name: str
    make: Callable[[Any], Drafter]
    targets: Sequence[LanguageModel]
    says: Callable[[Any, Sequence[int], Sequence[int]], Logits] | None = None
    tolerance: float = 0.0
    is_exact: bool = True

    @property
    def target(self) -> LanguageModel:
        return self.targets[0]

    def assert_same(self, one: Draft, other: Draft) -> None:
        assert_same_draft(one, other, self.tolerance)


def assert_same_draft(one: Draft, other: Draft, tolerance: float = 0.0) -> None:
    assert one.token_ids == other.token_ids
    assert one.parents == other.parents
    assert (one.probs is None) == (other.probs is None)
    for row, other_row in zip(one.probs or (), other.probs or (), strict=True):
        np.testing.assert_allclose(row, other_row, rtol=0, atol=tolerance)
