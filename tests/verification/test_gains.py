"""What the better rules gain over token-wise ones: never a loss, and as much as was published."""

from collections.abc import Callable

import numpy as np
import pytest

from draftwise.models.tabular import TabularModel
from draftwise.verification import recursive_rejection, traversal
from tests.verification.lazily import CHAIN, TWO_BY_TWO, Setting, expected_accepted

Case = Callable[[int], Setting]
CASES: dict[str, tuple[Case, tuple[float, float]]] = {
    "chain": (lambda seed: related(seed, CHAIN), (0.03, 0.12)),
    "2x2, with replacement": (lambda seed: related(seed, TWO_BY_TWO, replacement=True), (0.005, 0.06)),
    "2x2, without": (lambda seed: related(seed, TWO_BY_TWO), (0.005, 0.06)),
}


def related(seed: int, parents: tuple[int, ...], replacement: bool = False) -> Setting:
    """A target and a draft model that is the target with noise, and so guesses well."""
    target = TabularModel.random(3, 2, seed, scale=1.2)
    noise = np.random.default_rng(1000 + seed).normal(0.0, 0.8, target.table.shape)
    return Setting(target, TabularModel(target.table + noise), parents, replacement)


@pytest.mark.parametrize(("case", "bounds"), CASES.values(), ids=CASES)
def test_more_is_accepted_over_a_hundred_cases(case: Case, bounds: tuple[float, float]) -> None:
    """In every one at least as much, and in the mean by a share of the published order."""
    one_by_one, together = (
        np.array([expected_accepted(case(seed), rule) for seed in range(100)])
        for rule in (recursive_rejection, traversal)
    )
    assert (together - one_by_one).min() > -1e-12
    gain = together.mean() / one_by_one.mean() - 1
    print(f"accepted {one_by_one.mean():.4f} -> {together.mean():.4f} ({gain:+.2%})")
    assert bounds[0] < gain < bounds[1]


def test_nothing_is_gained_by_a_deterministic_draft() -> None:
    """Of point masses there is nothing that a later token could make up for."""
    setting = related(0, CHAIN)
    greedy = Setting(setting.target, TabularModel(1e4 * setting.draft_model.table), CHAIN)
    assert expected_accepted(greedy, traversal) == pytest.approx(
        expected_accepted(greedy, recursive_rejection), abs=1e-12
    )
