"""The controller on a simulated clock, with trees whose acceptance is known: they are as large as pays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import product
from math import prod
from statistics import mean

import numpy as np
import pytest

from draftwise.control.base import Limit
from draftwise.drafters.growth import DynamicTree, Tree
from draftwise.drafters.likeliest_paths import likeliest_paths
from draftwise.randomness import Streams
from draftwise.sampling import Sampler, SamplingParams
from draftwise.sequence import Sequence as Row
from draftwise.sequence import StopConditions
from draftwise.types import Draft, Seconds, Step
from tests.control.simulated import CURVES, LONGEST, Guesser, Played, adaptive, rate
from tests.control.simulated import best_rate as best_chain_rate

SEEDS = range(3)
DEPTH = 6
Law = Sequence[Sequence[float]]  # by depth, and then by rank: how likely a guess is right where its parent is
LAWS: dict[str, Law] = {
    "narrow": [(0.8, 0.1, 0.05)] * DEPTH,
    "wide": [(0.4, 0.25, 0.15)] * DEPTH,
    "falling": [(0.7, 0.2, 0.05), (0.6, 0.2, 0.1), *[(0.3, 0.2, 0.2)] * (DEPTH - 2)],
}


@dataclass(frozen=True)
class Grower:
    """A drafter of trees, and its seconds for each depth. `says`: the confidence that it has for a chance."""

    law: Law
    cost: float
    says: Callable[[float], float] = lambda chance: chance

    def lookup(self, limit: Limit) -> tuple[Draft, int]:
        """Grow guess by guess; with the depths that were worked for."""

        def following(depth: int, _: int) -> list[tuple[float, int, int]]:
            return [
                (self.says(chance), rank, depth + 1)
                for rank, chance in enumerate(self.law[depth] if depth < DEPTH else ())
            ]

        draft = likeliest_paths(0, following, 3, limit)
        return draft, draft.depth

    def model(self, limit: Limit) -> tuple[Draft, int]:
        """Grow in a pass for each depth; with the passes that it took."""
        tree, worked = Tree(), 0
        growth = DynamicTree(LONGEST, width=3, depth=DEPTH).grow(tree, limit)
        try:
            nodes = next(growth)
            while True:
                worked += 1
                nodes = growth.send(
                    [
                        np.array([self.says(chance) for chance in self.law[len(tree.path_to(node))]])
                        for node in nodes
                    ]
                )
        except StopIteration as end:
            return end.value, worked


Grow = Callable[[Grower, Limit], tuple[Draft, int]]


def chance_of(path: Sequence[int], law: Law) -> float:
    """How likely all of a path is accepted, given by ranks."""
    return prod(law[depth][rank] for depth, rank in enumerate(path))


def best_rate(curve: Callable[[int], float], law: Law, cost: float) -> float:
    """Tokens a second of the best static tree, of all sizes and depths, or of none."""
    rates = [1 / curve(1)]
    for depth in range(1, DEPTH + 1):
        paths = (path for length in range(1, depth + 1) for path in product(range(3), repeat=length))
        tokens = 1 + np.cumsum(nlargest(LONGEST, (chance_of(path, law) for path in paths)))
        rates += [float(each) / (depth * cost + curve(n + 2)) for n, each in enumerate(tokens)]
    return max(rates)


def play(
    curve: Callable[[int], float], grower: Grower, grow: Grow, num_steps: int, seed: int
) -> list[Played]:
    """Run a controller; what is accepted is drawn, and what is counted is the mean of it."""
    controller = adaptive(curve, [Guesser(grower.cost, lambda random: ())])
    known = grower.says(grower.law[0][0]) if grow is Grower.lookup else None
    random = np.random.default_rng(seed)
    row = Row([0], StopConditions(10**9), Sampler(SamplingParams()), Streams.seeded(seed), None)
    played = []
    for _ in range(num_steps):
        (limit,) = controller.limits([row])
        drafter = limit.choose([known])
        draft, worked = (Draft(), 0) if drafter is None else grow(grower, limit)
        path = accepted(draft, grower.law, random)
        emitted = (1,) * (len(path) + 1)
        row.token_ids.extend(emitted)
        controller.observe(
            Step(
                0,
                draft.token_ids,
                len(path),
                emitted,
                ("",) * len(emitted),
                len(draft) + 1,
                Seconds(),
                parents=draft.parents,
                path=path,
            )
        )
        tokens = 1 + sum(chance_of(draft.path_to(node), grower.law) for node in range(len(draft)))
        played.append(Played(drafter, len(draft), tokens, grower.cost * worked + curve(len(draft) + 1)))
    return played


def accepted(draft: Draft, law: Law, random: np.random.Generator) -> tuple[int, ...]:
    """A path, drawn: of the guesses that follow one another at most one is right."""
    children, path = draft.children(), [-1]
    while below := children[path[-1] + 1]:
        right = np.cumsum([law[len(path) - 1][draft.token_ids[child]] for child in below]) > random.random()
        if not right.any():
            break
        path.append(below[int(right.argmax())])
    return tuple(path[1:])


def runs(curve: Callable[[int], float], grower: Grower, grow: Grow, num_steps: int) -> list[list[Played]]:
    return [play(curve, grower, grow, num_steps, seed) for seed in SEEDS]


every_curve = pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)


@every_curve
@pytest.mark.parametrize(
    ("grow", "cost"),
    [(Grower.lookup, 0.001), (Grower.model, 0.02), (Grower.model, 0.1)],
    ids=["guess by guess", "by depths", "by dear depths"],
)
@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_it_reaches_the_rate_of_the_best_tree(
    law: Law, grow: Grow, cost: float, curve: Callable[[int], float]
) -> None:
    """Within 5% after 200 steps."""
    rates = [rate(played[200:]) for played in runs(curve, Grower(law, cost), grow, 400)]
    assert mean(rates) > 0.95 * best_rate(curve, law, cost)


@every_curve
def test_unlikely_trees_cost_next_to_nothing(curve: Callable[[int], float]) -> None:
    law = [(0.1, 0.05, 0.02)] * DEPTH
    rates = [rate(played) for played in runs(curve, Grower(law, 0.01), Grower.lookup, 500)]
    assert mean(rates) > 0.95 * best_rate(curve, law, 0.01)


@pytest.mark.parametrize("grow", [Grower.lookup, Grower.model], ids=["guess by guess", "by depths"])
@pytest.mark.parametrize("says", [lambda p: p / 2, lambda p: p**0.5], ids=["too modest", "too sure"])
def test_a_confidence_is_calibrated(says: Callable[[float], float], grow: Grow) -> None:
    for curve in (CURVES["flat"], CURVES["linear"]):
        right, off = (
            mean(rate(played[200:]) for played in runs(curve, Grower(LAWS["wide"], 0.01, each), grow, 400))
            for each in (lambda chance: chance, says)
        )
        assert off > 0.97 * right


def test_a_tree_is_worth_more_than_a_chain() -> None:
    """Where the first guess is often wrong and the target's passes widen for little."""
    curve = CURVES["flat"]
    tree = mean(rate(p[200:]) for p in runs(curve, Grower(LAWS["wide"], 0.001), Grower.lookup, 500))
    chain = best_chain_rate(curve, [chances[0] for chances in LAWS["wide"]], 0.001)
    assert tree > 1.3 * chain
