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


@dataclass(frozen=True)
class Played:
    """One step: who drafted, how much, the tokens that it yields in the mean, and its seconds."""

    drafter: int | None
    num_drafted: int
    tokens: float
    seconds: float


def adaptive(
    curve: Callable[[int], float],
    guessers: Sequence[Guesser],
    shared: Sequence[int] = (),
    reading: float = 0.0,
) -> Adaptive:
    """`shared`: the positions of several rows together for which the curve is known; `reading`: a token."""
    verify = {n: curve(n) for n in range(1, LONGEST + 2)}
    together = {n: curve(n) for n in shared}
    drafts = [{n: guesser.cost * n for n in range(1, LONGEST + 1)} for guesser in guessers]
    points = [lambda context_length, draft=draft: draft for draft in drafts]
    costs = CostModel(
        lambda context_length: verify,
        points,
        [reading] * len(guessers),
        constant=True,
        shared=(lambda context_length: together) if together else None,
    )
    return Adaptive(costs)


def play(
    controller: Adaptive,
    curve: Callable[[int], float],
    guessers: Sequence[Guesser],
    num_steps: int,
    seed: int = 0,
    num_prompt_tokens: int = 1,
    budget: int = 10**9,
) -> list[Played]:
    """Run a controller; what is accepted is drawn, and what is counted is the mean of it."""
    random = np.random.default_rng(seed)
    row = Row(
        [0] * num_prompt_tokens,
        StopConditions(budget),
        Sampler(SamplingParams()),
        Streams.seeded(seed),
        None,
    )
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


def play_together(
    controller: Adaptive,
    curve: Callable[[int], float],
    acceptance: Sequence[float],
    num_steps: int,
    *,
    in_turn: bool,
    seed: int = 0,
) -> list[Played]:
    """Rows with chances of their own that pass together, by what all of their positions take; a step for all.

    `in_turn`: a row's draft is made before that of the next, as lookup does; else they grow token by token,
    as with a draft model. Guesses cost nothing.
    """
    random = np.random.default_rng(seed)
    rows = [
        Row([0], StopConditions(10**9), Sampler(SamplingParams()), Streams.seeded(seed), None)
        for _ in acceptance
    ]
    for row, sequence in enumerate(rows):
        controller.begin(row, sequence)
    played = []
    for _ in range(num_steps):
        limits = controller.limits(rows)
        drafting = [row for row, limit in enumerate(limits) if limit.choose([None]) is not None]
        lengths = [0] * len(rows)
        for growing in [[row] for row in drafting] if in_turn else [drafting]:
            while growing := [row for row in growing if limits[row].allows(lengths[row])]:
                for row in growing:
                    lengths[row] += 1
        tokens = 0.0
        for row, (length, chance) in enumerate(zip(lengths, acceptance, strict=True)):
            accepted = next((i for i in range(length) if random.random() >= chance), length)
            rows[row].token_ids.extend((1,) * (accepted + 1))
            emitted = (1,) * (accepted + 1)
            controller.observe(
                Step(row, (1,) * length, accepted, emitted, ("",) * len(emitted), length + 1, Seconds())
            )
            tokens += sum(chance**n for n in range(length + 1))
        longest = max(lengths)
        played.append(Played(0, longest, tokens, curve(len(rows) * (longest + 1))))
    return played


def best_rate_together(curve: Callable[[int], float], acceptance: Sequence[float]) -> float:
    """Tokens a second of all rows at the best length, the same for all of them and at every step."""
    return max(
        sum(chance**n for chance in acceptance for n in range(length + 1))
        / curve(len(acceptance) * (length + 1))
        for length in range(LONGEST + 1)
    )
