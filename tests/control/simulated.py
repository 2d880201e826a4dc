"""A simulated clock: steps whose acceptance and seconds are known, and what the best fixed choice makes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from draftwise.control.adaptive import Adaptive
from draftwise.control.cost import CostModel
from draftwise.randomness import Streams
from draftwise.sampling import Sampler, SamplingParams
from draftwise.sequence import Sequence as Row
from draftwise.sequence import StopConditions
from draftwise.types import Seconds, Step

LONGEST = 32
# T(n), in passes over one position.
CURVES: dict[str, Callable[[int], float]] = {
    "flat": lambda n: 1 + 0.005 * n,
    "linear": lambda n: 1 + 0.12 * (n - 1),
    "convex": lambda n: 1 + 0.05 * (n - 1) + 0.004 * (n - 1) ** 2,
    "plateau": lambda n: 1.0 if n <= 4 else 1.6 if n <= 8 else 1.6 + 0.2 * (n - 8),
    "step": lambda n: 1.0 + 0.5 * ((n - 1) // 4),
}


@dataclass(frozen=True)
class Guesser:
    """A drafter with a cost for each token, and with known chances of acceptance.

    `acceptance`: of the tokens in order, each given that those before are accepted; anew for each draft.
    `confidence`: what it says of a token with such a chance; `knows`: whether it says so before any work.
    """

    cost: float
    acceptance: Callable[[np.random.Generator], Sequence[float]]
    confidence: Callable[[float], float | None] = lambda chance: None
    knows: bool = False

    @classmethod
    def constant(cls, alpha: float, cost: float) -> "Guesser":
        return cls(cost, lambda random: [alpha] * LONGEST)


class Costs(CostModel):
    """Reading is free, so that it is not a part of what is to be found."""

    def read(self, drafter: int, num_tokens: int, context_length: int) -> float:
        return 0.0


@dataclass(frozen=True)
class Played:
    """One step: who drafted, how much, the tokens that it yields in the mean, and its seconds."""

    drafter: int | None
    num_drafted: int
    tokens: float
    seconds: float


def adaptive(curve: Callable[[int], float], guessers: Sequence[Guesser]) -> Adaptive:
    verify = {n: curve(n) for n in range(1, LONGEST + 2)}
    drafts = [{n: guesser.cost * n for n in range(1, LONGEST + 1)} for guesser in guessers]
    points = [lambda context_length, draft=draft: draft for draft in drafts]
    return Adaptive(Costs(lambda context_length: verify, points, constant=True))


def play(
    controller: Adaptive,
    curve: Callable[[int], float],
    guessers: Sequence[Guesser],
    num_steps: int,
    seed: int = 0,
) -> list[Played]:
    """Run a controller; what is accepted is drawn, and what is counted is the mean of it."""
    random = np.random.default_rng(seed)
    row = Row([0], StopConditions(10**9), Sampler(SamplingParams()), Streams.seeded(seed), None)
    played = []
    for _ in range(num_steps):
        chances = [guesser.acceptance(random) for guesser in guessers]
        (limit,) = controller.limits([row])
        drafter = limit.choose(
            [
                guesser.confidence(chance[0]) if guesser.knows else None
                for guesser, chance in zip(guessers, chances, strict=True)
            ]
        )
        length = worked = 0
        if drafter is not None:
            guesser, chance = guessers[drafter], chances[drafter]
            while limit.allows(length):
                worked = length + 1
                if not limit.allows(length, guesser.confidence(chance[length])):
                    break
                length += 1
        chance = chances[drafter][:length] if drafter is not None else []
        accepted = next((i for i, each in enumerate(chance) if random.random() >= each), length)
        emitted = (1,) * (accepted + 1)
        row.token_ids.extend(emitted)
        controller.observe(
            Step(0, (1,) * length, accepted, emitted, ("",) * len(emitted), length + 1, Seconds())
        )
        cost = guessers[drafter].cost * worked if drafter is not None else 0.0
        played.append(Played(drafter, length, 1 + float(np.cumprod(chance).sum()), cost + curve(length + 1)))
    return played


def rate(played: Sequence[Played]) -> float:
    """Tokens a second."""
    return sum(each.tokens for each in played) / sum(each.seconds for each in played)


def best_rate(curve: Callable[[int], float], chances: Sequence[float], cost: float) -> float:
    """Tokens a second at the best fixed length, for known chances by position."""
    tokens = 1 + np.concatenate([[0.0], np.cumsum(np.cumprod(chances))])
    return max(float(tokens[n]) / (n * cost + curve(n + 1)) for n in range(len(tokens)))
