"""Typical acceptance: what it keeps, and that it has to be asked for."""

import numpy as np
import pytest

from draftwise.randomness import Streams
from draftwise.sampling import point_mass
from draftwise.types import Draft, Verdict
from draftwise.verification import RULES, find_rule, verify
from draftwise.verification.typical import DELTA, EPSILON, threshold, typical

SURE = np.array([0.88, 0.07, 0.03, 0.02])
UNDECIDED = np.full(20, 0.05)


def verdict(draft: Draft, *target_probs: np.ndarray) -> Verdict:
    streams = Streams.seeded(1)
    return typical(draft, target_probs, streams.acceptance, streams.recovery)


def test_the_threshold_falls_with_entropy() -> None:
    assert threshold(SURE) == EPSILON
    assert threshold(UNDECIDED) == pytest.approx(DELTA / 20)
    assert threshold(point_mass(2, 4, np.float32)) == EPSILON


def test_what_is_plausible_is_kept() -> None:
    assert verdict(Draft((0, 0)), SURE, SURE, SURE).path == (0, 1)
    assert verdict(Draft((0, 1)), SURE, SURE, SURE).path == (0,)
    assert verdict(Draft((1, 0)), SURE, SURE, SURE).path == ()
    assert verdict(Draft((7,)), UNDECIDED, UNDECIDED).path == (0,)  # less likely than the 1 above
    assert verdict(Draft((9,)), SURE, SURE).path == ()  # the target has no such token


def test_the_longest_path_of_a_tree_wins_and_then_the_likeliest() -> None:
    tree = Draft((0, 1, 0, 2), None, (-1, -1, 1, 1))
    even = np.array([0.5, 0.3, 0.2])
    assert verdict(tree, even, even, even, even, even).path == (1, 2)
    assert verdict(Draft((2, 0, 1), None, (-1, -1, -1)), even, even, even, even).path == (1,)


def test_at_temperature_zero_it_is_exact() -> None:
    sure = [point_mass(token_id, 4, np.float64) for token_id in (2, 1, 3)]
    for tokens in ((2, 1), (2, 0), (0, 1)):
        streams = Streams.seeded(0)
        exact = verify(Draft(tokens), sure, streams.acceptance, streams.recovery)
        assert verdict(Draft(tokens), *sure) == exact


def test_it_has_to_be_asked_for() -> None:
    assert find_rule("typical") is typical
    assert "typical" not in RULES
