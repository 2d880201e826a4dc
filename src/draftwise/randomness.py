"""The random decisions of a sequence: three independent streams, or noise that drafter and target share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, log
from typing import Protocol

import numpy as np

from draftwise.checks import whole_number
from draftwise.types import Probs

_GROUPS = 16  # shares that one uniform chooses between


class Randomness(Protocol):
    """Makes random decisions. Tests put an enumerator in its place that takes every branch in turn."""

    def accept(self, probability: float) -> bool:
        """True with the given probability; never true at 0, always at 1 or more."""
        ...

    def sample(self, probs: Probs) -> int:
        """Draw an index of `probs` `[vocabulary]`, which sums to one up to rounding."""
        ...

    def ahead(self, offset: int) -> "Randomness":
        """Decisions for the position `offset` further on, where noise is a function of the position."""
        ...


class RandomStream:
    """Decisions from one seeded generator; uniforms are in (0, 1], so a zero probability never wins."""

    def __init__(self, seed: np.random.SeedSequence) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def _uniform(self) -> float:
        return 1.0 - self._generator.random()

    def accept(self, probability: float) -> bool:
        return self._uniform() <= probability

    def sample(self, probs: Probs) -> int:
        return draw(probs, self._uniform)

    def ahead(self, offset: int) -> "RandomStream":
        return self


def draw(probs: Probs, uniform: Callable[[], float]) -> int:
    """Draw an index by its share of the total: a group of indices, then a part of it, down to one of them.

    `uniform`: makes numbers in (0, 1], one for each choice. Sums are in float64. What has probability zero
    adds nothing to a sum, so it is never the first to reach anything. Each choice is between few shares, so
    that probabilities that differ in their last bits give the same index; on the edges of one cumulative sum
    over a large vocabulary such differences add up, and a text would not repeat in passes of another width.
    """
    chosen = [uniform() for _ in range(ceil(log(len(probs), _GROUPS)))]
    likeliest = int(probs.argmax())
    if not (probs[:likeliest].any() or probs[likeliest + 1 :].any()):  # as greedily always; sums take longer
        return likeliest
    begin, size = 0, _GROUPS ** len(chosen)
    part = probs
    for share in chosen:
        size //= _GROUPS
        shares = np.add.reduceat(part, np.arange(0, len(part), size), dtype=np.float64).cumsum()
        group = int(np.searchsorted(shares, share * shares[-1]))
        begin += group * size
        part = part[group * size : (group + 1) * size]
    return begin


@dataclass(frozen=True, slots=True)
class Streams:
    """The three streams of one sequence. Recovery that reused the draft's noise would be biased."""

    drafting: Randomness
    acceptance: Randomness
    recovery: Randomness

    def at(self, position: int) -> "Streams":
        """The streams of the step that follows `position` tokens: the same ones at every step."""
        return self

    @classmethod
    def seeded(cls, seed: int | None) -> "Streams":
        """Independent streams from one seed, None for fresh entropy; raises OptionError if it is negative."""
        drafting, acceptance, recovery = _seed_sequence(seed).spawn(3)
        return cls(RandomStream(drafting), RandomStream(acceptance), RandomStream(recovery))


class PositionalNoise:
    """Decisions at consecutive positions, each a function of key, position and distribution alone.

    A token is drawn by a race: each has an exponential variable of its own, and the first after division by
    its probability wins (the Gumbel-max trick). So two similar distributions, also of different widths,
    mostly give the same token at the same position.
    """

    def __init__(self, key: Sequence[int], position: int) -> None:
        self._key = key
        self._position = position

    def accept(self, probability: float) -> bool:
        return self.sample(np.array([1 - probability, probability])) == 1

    def sample(self, probs: Probs) -> int:
        philox = np.random.Philox(key=self._key, counter=[0, 0, 0, self._position])
        noise = np.random.Generator(philox).standard_exponential(len(probs))
        self._position += 1
        with np.errstate(divide="ignore", invalid="ignore"):
            # What has probability zero must not win, nor yield NaN: its share is zero whatever its noise.
            return int(np.nanargmax(probs / noise))

    def ahead(self, offset: int) -> "PositionalNoise":
        return PositionalNoise(self._key, self._position + offset)


class CoupledStreams:
    """Noise that is keyed by seed and position, and that drafting and recovery share.

    Only for verification that emits the target's own draw at each position (`verification.matching`): that
    draw then depends on the text, the seed and the position, and not on the draft.
    """

    def __init__(self, seed: int | None) -> None:
        """From a seed, None for fresh entropy; raises OptionError if it is negative."""
        self._key = _seed_sequence(seed).generate_state(2, np.uint64).tolist()

    def at(self, position: int) -> Streams:
        """The streams of the step that follows `position` tokens."""
        drafting, acceptance, recovery = (PositionalNoise(self._key, position) for _ in range(3))
        return Streams(drafting, acceptance, recovery)


def _seed_sequence(seed: int | None) -> np.random.SeedSequence:
    if seed is not None:
        whole_number("seed", seed, least=0)
    return np.random.SeedSequence(seed)
