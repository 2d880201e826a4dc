"""From logits to the adjusted distribution that is sampled from (2211.17192, section 2.2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import overload

import numpy as np
from numpy.typing import DTypeLike

from draftwise.checks import number, whole_number
from draftwise.errors import ModelError, OptionError
from draftwise.types import Logits, Probs


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is drawn; the default is greedy. Raises OptionError for a value out of range.

    The filters apply in the order temperature, top-k, top-p, min-p, each to what the one before it left. Each
    is a cutoff, so a token that is exactly as likely as the last one kept is kept too.
    """

    temperature: float = 0.0  # 0 takes the most likely token
    top_k: int | None = None  # keep the k most likely tokens
    top_p: float = 1.0  # keep the fewest most likely tokens whose probabilities sum to at least top_p
    min_p: float = 0.0  # keep the tokens at least min_p times as likely as the most likely one

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p", "min_p"):
            number(name, getattr(self, name))
        if not 0 <= self.temperature < inf:
            raise OptionError(
                f"temperature is {self.temperature}; give 0 (greedy) or a positive finite number."
            )
        if self.top_k is not None and whole_number("top_k", self.top_k) < 1:
            raise OptionError(f"top_k is {self.top_k}; give 1 or more, or leave it out to keep every token.")
        if not 0 < self.top_p <= 1:
            raise OptionError(
                f"top_p is {self.top_p}; give a number above 0 and up to 1, where 1 keeps every token."
            )
        if not 0 <= self.min_p <= 1:
            raise OptionError(f"min_p is {self.min_p}; give a number from 0 to 1, where 0 keeps every token.")


def adjusted_probs(logits: Logits, sampling: SamplingParams) -> Probs:
    """The distribution that one position is sampled from, in the dtype of its logits.

    `logits`: `[vocabulary]`; -inf bans a token. Greedy puts all mass on the most likely token, on a tie the
    first. Raises ModelError where the logits hold NaN or +inf, or ban every token.
    """
    best = int(logits.argmax())  # the first NaN, if there is one
    if not np.isfinite(logits[best]):
        raise ModelError(
            f"no distribution follows from these logits: the largest of {len(logits)} is {logits[best]}; "
            "check the model's weights and precision, and that something is left to sample."
        )
    if sampling.temperature == 0:
        return point_mass(best, len(logits), logits.dtype)
    precision = np.finfo(logits.dtype)
    temperature = min(max(sampling.temperature, float(precision.tiny)), float(precision.max))
    with np.errstate(over="ignore"):  # a difference too large for the dtype is -inf: no mass
        scaled = (logits - logits[best]) / temperature
    weights: Probs = np.exp(scaled)  # the largest is 1
    if sampling.top_k is not None:
        weights *= scaled >= kth_largest(scaled, min(sampling.top_k, len(scaled)))
    if sampling.top_p < 1:
        weights *= weights >= nucleus_cutoff(weights, sampling.top_p)
    if sampling.min_p > 0:
        weights *= weights >= sampling.min_p
    weights /= weights.sum()
    return weights


def point_mass(token_id: int, size: int, dtype: DTypeLike) -> Probs:
    """The distribution `[size]` that is certain of one token."""
    probs: Probs = np.zeros(size, dtype)
    probs[token_id] = 1
    return probs


def kth_largest(values: Logits, k: int) -> np.floating:
    """The k-th largest of `values`, for k up to their number.

    The k-th largest of the maxima of blocks is at most that, so only what reaches it needs partitioning.
    """
    maxima = np.maximum.reduceat(values, np.arange(0, len(values), 64))
    if k <= len(maxima):
        values = values[values >= np.partition(maxima, -k)[-k]]
    kth: np.floating = np.partition(values, -k)[-k]
    return kth


def nucleus_cutoff(weights: Probs, top_p: float) -> np.floating:
    """The smallest weight in the nucleus: the fewest largest weights that hold `top_p` of the total.

    Only weights above a threshold are looked at. It starts high and falls until they hold enough, at the
    latest where all the others together could not hold the rest; zero is for rounding.
    """
    total = float(weights.sum())
    threshold = weights.dot(weights) / total  # the mean weight of a drawn token
    others_cannot = (1 - top_p) * total / len(weights)
    while (largest := weights[weights >= threshold]).sum() < top_p * total and threshold:
        threshold = threshold / 16 if threshold > others_cannot else 0.0

    missing = top_p * total
    while len(largest) > 256:  # a weighted quickselect, so that only a few are sorted
        middle = len(largest) // 2
        largest.partition(middle)
        upper_half = largest[middle:].sum(dtype=np.float64)
        if upper_half >= missing:
            largest = largest[middle:]
        else:
            largest = largest[:middle]
            missing -= upper_half
    largest = np.sort(largest)[::-1]
    last = int(np.searchsorted(np.cumsum(largest, dtype=np.float64), missing))
    cutoff: np.floating = largest[min(last, len(largest) - 1)]
    return cutoff


class Distributions(Sequence[Probs]):
    """The adjusted distributions of consecutive positions, each computed when first asked for.

    `logits`: `[positions, vocabulary]`. Positions after a rejection are never asked for, and cost nothing.
    """

    def __init__(self, logits: Logits, sampling: SamplingParams) -> None:
        self._logits = logits
        self._sampling = sampling
        self._probs: dict[int, Probs] = {}

    def __len__(self) -> int:
        return len(self._logits)

    @overload
    def __getitem__(self, index: int) -> Probs: ...

    @overload
    def __getitem__(self, index: slice) -> list[Probs]: ...

    def __getitem__(self, index: int | slice) -> Probs | list[Probs]:
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        position = range(len(self))[index]
        if position not in self._probs:
            self._probs[position] = adjusted_probs(self._logits[position], self._sampling)
        return self._probs[position]
