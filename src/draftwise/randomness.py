"""The random decisions of a sequence: three independent streams, each one a source of decisions."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from draftwise.types import Probs


class Randomness(Protocol):
    """Makes random decisions. Tests put an enumerator in its place that takes every branch in turn."""

    def accept(self, probability: float) -> bool:
        """True with the given probability; never true at 0, always at 1 or more."""
        ...

    def sample(self, probs: Probs) -> int:
        """Draw an index of `probs` `[vocabulary]`, which sums to one up to rounding."""
        ...


class RandomStream:
    """Decisions from one seeded generator; uniforms are in (0, 1], so a zero probability never wins."""

    def __init__(self, seed: np.random.SeedSequence) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def _uniform(self) -> float:
        return 1.0 - self._generator.random()

    def accept(self, probability: float) -> bool:
        return bool(self._uniform() <= probability)

    def sample(self, probs: Probs) -> int:
        support = np.flatnonzero(probs)
        cumulative = np.cumsum(probs[support], dtype=np.float64)
        # "left": the first index whose cumulative mass reaches the draw, so the draw 1.0 is the last token.
        drawn = np.searchsorted(cumulative, self._uniform() * cumulative[-1], side="left")
        return int(support[drawn])


@dataclass(frozen=True, slots=True)
class Streams:
    """The three streams of one sequence. Recovery that reused the draft's noise would be biased."""

    drafting: Randomness
    acceptance: Randomness
    recovery: Randomness

    @classmethod
    def seeded(cls, seed: int | None) -> "Streams":
        """Independent streams from one seed; None takes fresh entropy."""
        drafting, acceptance, recovery = np.random.SeedSequence(seed).spawn(3)
        return cls(RandomStream(drafting), RandomStream(acceptance), RandomStream(recovery))
