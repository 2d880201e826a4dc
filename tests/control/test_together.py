"""Rows that pass together, on a simulated clock: the pass is as wide as pays for all of them."""

from collections.abc import Callable, Sequence
from itertools import count, takewhile

import pytest

from draftwise.models.tabular import TabularModel
from draftwise.planning.timing import WIDER, WIDTHS
from draftwise.request import Request
from tests.control.simulated import Guesser, adaptive, best_rate_together, play_together, rate

TARGET = TabularModel.random(3)
# Seconds by the positions of all rows.
CURVES: dict[str, Callable[[int], float]] = {
    "flat": lambda n: 1 + 0.001 * n,
    "linear": lambda n: 1 + 0.02 * n,
    "a roof": lambda n: max(1.0, n / 48),
    "step": lambda n: 1.0 + 0.4 * ((n - 1) // 16),
}
ROWS = {
    "low": [0.2] * 8,
    "middling": [0.6] * 8,
    "high": [0.85] * 8,
    "one is sure": [0.95, *[0.1] * 7],
    "half of them are": [*[0.9] * 4, *[0.2] * 4],
    "each another": [0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95],
}
every_order = pytest.mark.parametrize("in_turn", [True, False], ids=["in turn", "token by token"])


@every_order
@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
@pytest.mark.parametrize("acceptance", ROWS.values(), ids=ROWS)
def test_it_reaches_the_best_rate(
    acceptance: Sequence[float], curve: Callable[[int], float], in_turn: bool
) -> None:
    controller = adaptive(curve, [Guesser.constant(0, 0)], WIDTHS + WIDER)
    played = play_together(controller, curve, acceptance, 200, in_turn=in_turn)
    assert rate(played[100:]) > 0.95 * best_rate_together(curve, acceptance)


def test_what_others_pay_for_is_free() -> None:
    """Rows that are hardly ever right go as far as those that nearly always are, and no further."""
    curve = CURVES["linear"]
    controller = adaptive(curve, [Guesser.constant(0, 0)], WIDTHS + WIDER)
    play_together(controller, curve, [*[0.95] * 4, *[0.1] * 4], 100, in_turn=True)
    rows = [Request([1], max_new_tokens=64).sequence(TARGET) for _ in range(8)]
    limits = controller.limits(rows)
    assert [limit.choose([None]) for limit in limits] == [0] * 8
    lengths = [sum(1 for _ in takewhile(limit.allows, count())) for limit in limits]
    assert lengths[4:] == [max(lengths[:4])] * 4
    assert max(lengths) > 3


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
def test_the_hopeless_cost_next_to_nothing(curve: Callable[[int], float]) -> None:
    """From the first step on: less than 3% over 400 steps, with rows whose guesses are never right."""
    controller = adaptive(curve, [Guesser.constant(0, 0)], WIDTHS + WIDER)
    played = play_together(controller, curve, [0.0] * 8, 400, in_turn=True)
    assert rate(played) > 0.97 * 8 / curve(8)
