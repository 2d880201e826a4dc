"""Seconds of a step from measured points, and how they follow the clock."""

import pytest

from draftwise.control.cost import CostModel
from draftwise.types import Seconds

POINTS = {1: 1.0, 2: 1.0, 4: 1.6, 8: 2.4}


@pytest.mark.parametrize("constant", [False, True])
def test_it_follows_the_clock_unless_decisions_are_to_repeat(constant: bool) -> None:
    costs = CostModel(lambda context: POINTS, [lambda context: {1: 0.1}], constant=constant)
    for _ in range(200):
        costs.observe(Seconds(0.3, 2.0), 2, (0, 1), 100)
    assert costs.verify(100)[1] == pytest.approx(1.0 if constant else 2.0, rel=0.01)
    assert costs.draft(0, 100)[1] == pytest.approx(0.1 if constant else 0.3, rel=0.01)


def test_one_slow_moment_changes_little() -> None:
    costs = CostModel(lambda context: POINTS, [], constant=False)
    costs.observe(Seconds(0.0, 100.0), 1, None, 100)
    assert costs.verify(100)[1] < 1.05


def test_reading_keeps_the_pace_of_drafting_and_is_no_part_of_it() -> None:
    costs = CostModel(lambda context: POINTS, [lambda context: {1: 0.1, 2: 0.2}], [0.01], constant=False)
    costs.observe(Seconds(0.7, 1.0), 3, (0, 2), 100, costs.read(0, 50))
    assert costs.read(0, 50) == pytest.approx(0.5)
    for _ in range(200):
        costs.observe(Seconds(0.6, 1.0), 3, (0, 2), 100)
    assert costs.read(0, 50) == pytest.approx(1.5, rel=0.01)
    assert CostModel(lambda context: POINTS, [lambda context: {1: 0.1}], constant=True).read(0, 9) == 0


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
