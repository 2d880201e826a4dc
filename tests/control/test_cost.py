"""Seconds of a step from measured points, and how they follow the clock."""

import pytest

from draftwise.control.acceptance import MOST
from draftwise.control.cost import CostModel, Curve
from draftwise.types import Seconds

POINTS = {1: 1.0, 2: 1.0, 4: 1.6, 8: 2.4}


def test_between_points_it_is_linear_and_beyond_them_as_steep_as_before() -> None:
    seconds = Curve(lambda context: POINTS).seconds(100)
    assert (seconds[0], seconds[1], seconds[3], seconds[8]) == (0.0, 1.0, pytest.approx(1.3), 2.4)
    assert seconds[12] == pytest.approx(2.4 + 4 * 0.2)
    assert len(seconds) == MOST + 2


def test_noise_makes_no_size_dearer_than_a_larger_one() -> None:
    seconds = Curve(lambda context: {1: 1.2, 2: 1.0, 4: 1.5, 8: 1.4})
    assert seconds.seconds(0) == sorted(seconds.seconds(0))
    assert seconds.seconds(0)[1] == seconds.seconds(0)[2] == pytest.approx(1.1)


def test_contexts_have_their_own_points() -> None:
    curve = Curve(lambda context: {1: 1 + context / 1000})
    assert curve.seconds(2000)[1] > curve.seconds(100)[1]


@pytest.mark.parametrize("constant", [False, True])
def test_it_follows_the_clock_unless_decisions_are_to_repeat(constant: bool) -> None:
    costs = CostModel(lambda context: POINTS, [lambda context: {1: 0.1}], constant=constant)
    for _ in range(200):
        costs.observe(Seconds(0.3, 2.0), 2, (0, 1), 100)
    assert costs.verify(100)[1] == pytest.approx(1.0 if constant else 2.0, rel=0.01)
    assert costs.draft(0, 100)[1] == pytest.approx(0.1 if constant else 0.3, rel=0.01)
    assert costs.draft(None, 100)[0] == 0


def test_one_slow_moment_changes_little() -> None:
    costs = CostModel(lambda context: POINTS, [], constant=False)
    costs.observe(Seconds(0.0, 100.0), 1, None, 100)
    assert costs.verify(100)[1] < 1.05


def test_reading_widens_as_the_targets_passes_do() -> None:
    costs = CostModel(
        lambda context: {1: 1.0, MOST: 1.0 + (MOST - 1) / 4}, [lambda context: {1: 0.2}], constant=True
    )
    assert costs.read(0, 10, 100) == pytest.approx(0.2 * 10 / 4)


def test_rows_pass_together_for_what_their_positions_take() -> None:
    """A pass costs 8 and 1 for each position, and beyond 32 of them nothing more."""
    costs = CostModel(
        lambda context: {1: 9.0, 32: 40.0},
        [lambda context: {1: 3.0}],
        constant=True,
        shared=lambda context: {1: 9.0, 32: 40.0, 64: 40.0},
    )
    assert costs.verify(100, 4)[1:4] == [12.0, 16.0, 20.0]
    assert costs.verify(100, 4)[8] == costs.verify(100, 4)[10] == 40.0
    assert costs.verify(100)[1:4] == [9.0, 10.0, 11.0]
    assert costs.draft_share(0, 1) == 1.0
    assert costs.draft_share(0, 4) == 12.0 / (4 * 9.0)
