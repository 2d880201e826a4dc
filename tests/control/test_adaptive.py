"""The controller on a simulated clock: it finds the best, follows a change, and gives up the hopeless."""

from collections import Counter
from collections.abc import Callable
from statistics import mean

import numpy as np
import pytest

from draftwise.models.tabular import TabularModel
from draftwise.request import Request
from tests.control.simulated import CURVES, LONGEST, Guesser, Played, adaptive, best_rate, play, rate

SEEDS = range(3)
every_curve = pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
BY_POSITION = {
    "none": [0.0] * LONGEST,
    "low": [0.3] * LONGEST,
    "middling": [0.6] * LONGEST,
    "high": [0.8] * LONGEST,
    "higher": [0.9] * LONGEST,
    "falling": [0.95, 0.9, 0.8, 0.6, 0.4, *[0.2] * (LONGEST - 5)],
    "rising": [0.5, 0.8, 0.9, *[0.95] * (LONGEST - 3)],
    "a cliff": [*[0.9] * 4, *[0.05] * (LONGEST - 4)],
}
# Few drafts come as far as where the tokens become better.
DEEP = {
    "rising slowly": [0.6, 0.7, 0.8, 0.9, *[0.97] * (LONGEST - 4)],
    "rising from little": [0.3, 0.6, 0.9, *[0.95] * (LONGEST - 3)],
}


def fixed(chances: list[float], cost: float) -> Guesser:
    return Guesser(cost, lambda random: chances)


def runs(curve: Callable[[int], float], guessers: list[Guesser], num_steps: int) -> list[list[Played]]:
    return [play(adaptive(curve, guessers), curve, guessers, num_steps, seed) for seed in SEEDS]


@every_curve
@pytest.mark.parametrize("cost", [0.01, 0.2])
@pytest.mark.parametrize(
    ("chances", "within"),
    [*((each, 0.98) for each in BY_POSITION.values()), *((each, 0.95) for each in DEEP.values())],
    ids=[*BY_POSITION, *DEEP],
)
def test_it_reaches_the_best_rate(
    chances: list[float], within: float, cost: float, curve: Callable[[int], float]
) -> None:
    """After 200 steps, whatever the curve, the cost and the chances by position."""
    rates = [rate(played[200:]) for played in runs(curve, [fixed(chances, cost)], 500)]
    assert mean(rates) > within * best_rate(curve, chances, cost)


@every_curve
@pytest.mark.parametrize(("before", "after"), [(0.9, 0.2), (0.2, 0.9), (0.0, 0.8), (0.8, 0.0), (0.9, 0.6)])
@pytest.mark.parametrize("cost", [0.1])
def test_it_follows_an_abrupt_change(
    before: float, after: float, cost: float, curve: Callable[[int], float]
) -> None:
    """100 steps after it the rate is within 4% of the best, with what went before still in mind."""
    rates = []
    for seed in SEEDS:
        controller = adaptive(curve, [Guesser.constant(before, cost)])
        play(controller, curve, [Guesser.constant(before, cost)], 400, seed)
        played = play(controller, curve, [Guesser.constant(after, cost)], 200, seed + 100)
        rates.append(rate(played[100:]))
    assert mean(rates) > 0.96 * best_rate(curve, [after] * LONGEST, cost)


@every_curve
def test_the_better_drafter_is_taken(curve: Callable[[int], float]) -> None:
    cheap, good = Guesser.constant(0.3, 0.001), Guesser.constant(0.9, 0.05)
    for guessers in ([cheap, good], [good, cheap]):
        best = max(best_rate(curve, [0.9] * LONGEST, 0.05), best_rate(curve, [0.3] * LONGEST, 0.001))
        rates = [rate(played[200:]) for played in runs(curve, guessers, 500)]
        assert mean(rates) > 0.95 * best


def test_each_step_takes_the_drafter_that_is_better_then() -> None:
    """Lookup where it is sure, which it says for nothing; the draft model elsewhere."""

    def sometimes(random: np.random.Generator) -> list[float]:
        return [0.97 if random.random() < 0.4 else 0.03] * LONGEST

    lookup = Guesser(0.001, sometimes, confidence=lambda chance: chance, knows=True)
    model = Guesser.constant(0.7, 0.05)
    curve = CURVES["linear"]
    by_chance: Counter[tuple[int | None, bool]] = Counter()
    for played in runs(curve, [lookup, model], 600):
        by_chance.update((each.drafter, each.num_drafted > 5) for each in played[200:])
    total = sum(by_chance.values())
    assert by_chance[0, True] > 0.35 * total  # a long copy wherever there is one
    assert by_chance[1, False] > 0.3 * total  # mostly a short draft elsewhere
    alone = mean(rate(played[200:]) for played in runs(curve, [model], 600))
    both = mean(rate(played[200:]) for played in runs(curve, [lookup, model], 600))
    assert both > 1.5 * alone


def test_a_draft_ends_where_the_drafter_is_unsure() -> None:
    """Chances that differ from token to token, of which the drafter knows, are worth more than their mean."""

    def mixed(random: np.random.Generator) -> list[float]:
        return [0.98 if random.random() < 0.7 else 0.1 for _ in range(LONGEST)]

    curve = CURVES["linear"]
    knowing = Guesser(0.05, mixed, confidence=lambda chance: chance)
    unknowing = Guesser(0.05, mixed)
    rates = [
        mean(rate(played[200:]) for played in runs(curve, [guesser], 600)) for guesser in (knowing, unknowing)
    ]
    assert rates[0] > 1.1 * rates[1]


@pytest.mark.parametrize("scale", [lambda p: p / 3, lambda p: 1 - (1 - p) / 20, lambda p: 0.3 + 0.4 * p])
def test_a_confidence_is_calibrated(scale: Callable[[float], float]) -> None:
    """A drafter that is too sure of itself, or not sure enough, does as well as one that is right."""

    def mixed(random: np.random.Generator) -> list[float]:
        return [0.95 if random.random() < 0.7 else 0.1 for _ in range(LONGEST)]

    curve = CURVES["linear"]
    right, off = (
        mean(rate(played[200:]) for played in runs(curve, [Guesser(0.05, mixed, says)], 600))
        for says in (lambda chance: chance, scale)
    )
    assert off > 0.97 * right


@every_curve
@pytest.mark.parametrize("cost", [0.01, 0.3])
def test_the_hopeless_costs_next_to_nothing(cost: float, curve: Callable[[int], float]) -> None:
    """From the first step on: less than 2% over 1000 steps, with two drafters that are never right."""
    guessers = [
        Guesser.constant(0.0, cost),
        Guesser(cost, lambda random: [0.0] * LONGEST, lambda chance: 0.7),
    ]
    assert mean(rate(played) for played in runs(curve, guessers, 1000)) > 0.98 / curve(1)


@every_curve
@pytest.mark.parametrize("chance", [0.02, 0.1])
def test_work_for_tokens_that_are_then_refused_is_not_done_again_and_again(
    chance: float, curve: Callable[[int], float]
) -> None:
    """A drafter that knows how unsure it is, but only once it has worked for a token."""
    honest = Guesser(0.2, lambda random: [chance] * LONGEST, lambda chance: chance)
    assert mean(rate(played) for played in runs(curve, [honest], 1000)) > 0.98 / curve(1)


@every_curve
@pytest.mark.parametrize("cost", [0.33, 0.4])
def test_a_short_text_is_hardly_slowed_by_a_drafter_that_is_seldom_sure(
    cost: float, curve: Callable[[int], float]
) -> None:
    """How seldom shows in few of its confidences, sooner than in what becomes of its tokens."""

    def seldom(random: np.random.Generator) -> list[float]:
        return [0.55 if random.random() < 0.4 else 0.1] * LONGEST

    honest = Guesser(cost, seldom, lambda chance: chance)
    rates = [rate(play(adaptive(curve, [honest]), curve, [honest], 80, seed)) for seed in range(20)]
    assert mean(rates) > 0.975 / curve(1)


@pytest.mark.parametrize(("budget", "is_read"), [(400, True), (25, False)])
def test_a_long_prompt_is_read_where_enough_is_left_to_write(budget: int, is_read: bool) -> None:
    curve, model = CURVES["flat"], Guesser.constant(0.8, 0.1)
    controller = adaptive(curve, [model], reading=0.02)
    played = play(controller, curve, [model], 8, num_prompt_tokens=1000, budget=budget)
    assert any(each.drafter == 0 for each in played) == is_read


@pytest.mark.parametrize(("often", "num_read"), [(0.2, range(19, 21)), (0.8, range(10))])
def test_a_long_prompt_waits_for_what_others_make_of_it(often: float, num_read: range) -> None:
    """Where there mostly is a copy at hand the draft model would hardly be asked."""

    def sometimes(random: np.random.Generator) -> list[float]:
        return [0.5 if random.random() < often else 0.0] * LONGEST

    lookup = Guesser(0.001, sometimes, confidence=lambda chance: chance, knows=True)
    curve, guessers = CURVES["flat"], [lookup, Guesser.constant(0.6, 0.3)]
    texts = [
        play(adaptive(curve, guessers, reading=0.008), curve, guessers, 40, seed, 1000, 200)
        for seed in range(20)
    ]
    assert sum(any(step.drafter == 1 for step in played) for played in texts) in num_read


def test_it_turns_on_again() -> None:
    curve = CURVES["linear"]
    for seed in SEEDS:
        controller = adaptive(curve, [Guesser.constant(0.0, 0.2)])
        off = play(controller, curve, [Guesser.constant(0.0, 0.2)], 2000, seed)
        assert sum(each.num_drafted > 0 for each in off[1000:]) < 60
        on = play(controller, curve, [Guesser.constant(0.9, 0.2)], 150, seed + 1)
        assert sum(each.num_drafted > 1 for each in on[100:]) > 45


def test_it_decides_alike_every_time() -> None:
    """The same outcomes, the same decisions: there is no other source of them."""
    curve, guessers = CURVES["step"], [Guesser.constant(0.5, 0.1), Guesser.constant(0.6, 0.2)]
    once, again, other = (play(adaptive(curve, guessers), curve, guessers, 300, seed) for seed in (0, 0, 1))
    assert once == again != other


def test_no_more_is_forced_than_there_is_room_for_where_no_drafter_pays() -> None:
    """What a grammar forces needs no drafter, but a place in the text."""
    controller = adaptive(lambda n: float(n), [Guesser.constant(0.0, 1.0)])
    (limit,) = controller.limits([Request([1], max_new_tokens=4).sequence(TabularModel.random(3))])
    assert limit.choose([None]) is None
    assert [limit.allows(count, 1.0) for count in range(6)] == [True] * 3 + [False] * 3
