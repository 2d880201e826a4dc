"""How likely the next draft token is to be accepted: a drafter's own confidence, calibrated as it goes."""

from collections.abc import Sequence as Rows
from math import log2

import numpy as np

MOST = 32  # the most tokens that are ever drafted, and positions that are told apart
# Confidences are told apart by their odds, and those by their octave: a match of twice the length is another.
_LEAST, _GREATEST = -4, 10
_OCTAVES = range(_LEAST, _GREATEST + 1)
_UNKNOWN = 1.0  # log2 of the odds of a token of which nothing is known
_FORGET = 0.985  # what is left of an observation after each later step
_PRIOR_WEIGHT = 3.0  # observations that the prior counts for
_SHIFT_RATE, _LARGEST_SHIFT = 0.4, 4.0


class Acceptance:
    """Learns from verified draft tokens how likely one is accepted, given that those before it were.

    What is known of a token is its drafter's confidence or, without one, its position. A shift of the odds
    that all tokens share learns fast; each octave of confidence, and each position, learns how it differs.
    """

    def __init__(self) -> None:
        self._by_position = _Rates(MOST)
        self._by_confidence = _Rates(len(_OCTAVES))
        self._after_confidence = _Rates(len(_OCTAVES))
        self._shift = 0.0
        self._estimate()

    def ahead(self, position: int, confidence: float | None) -> Rows[float]:
        """The probability that the token at a position is accepted, and of each that would follow it."""
        if confidence is None:
            return self._position_rates[position:]
        kind = _kind(confidence)
        return [self._confidence_rates[kind], *[self._following_rates[kind]] * (MOST - 1 - position)]

    def observe(self, confidences: Rows[float | None], num_accepted: int) -> None:
        """Learn from a verified draft, of whose tokens these confidences were known."""
        for rates in (self._by_position, self._by_confidence, self._after_confidence):
            rates.forget()
        before: float | None = None
        for position, confidence in enumerate(confidences[: num_accepted + 1]):
            accepted = position < num_accepted
            log2_odds = _UNKNOWN if confidence is None else _LEAST + _kind(confidence)
            self._shift += _SHIFT_RATE * (accepted - _probability(log2_odds + self._shift))
            self._by_position.observe(position, accepted)
            if confidence is not None:
                self._by_confidence.observe(_kind(confidence), accepted)
            if before is not None:
                self._after_confidence.observe(_kind(before), accepted)
            before = confidence
        self._shift = max(-_LARGEST_SHIFT, min(_LARGEST_SHIFT, self._shift))
        self._estimate()

    def _estimate(self) -> None:
        self._confidence_rates = self._by_confidence.given(
            [_probability(octave + self._shift) for octave in _OCTAVES]
        )
        self._following_rates = self._after_confidence.given(self._confidence_rates)
        self._position_rates = self._by_position.chained(_probability(_UNKNOWN + self._shift))


class _Rates:
    """Acceptance rates of several kinds of tokens, recent observations counting most."""

    def __init__(self, size: int) -> None:
        self._accepted = np.zeros(size)
        self._tried = np.zeros(size)

    def forget(self) -> None:
        self._accepted *= _FORGET
        self._tried *= _FORGET

    def observe(self, kind: int, accepted: bool) -> None:
        self._accepted[kind] += accepted
        self._tried[kind] += 1

    def given(self, priors: Rows[float]) -> list[float]:
        """The rates; a kind that was hardly seen of late has about that of its prior."""
        weighted = zip(self._accepted.tolist(), self._tried.tolist(), priors, strict=True)
        return [
            (accepted + _PRIOR_WEIGHT * prior) / (tried + _PRIOR_WEIGHT)
            for accepted, tried, prior in weighted
        ]

    def chained(self, prior: float) -> list[float]:
        """The rates, where each kind is the prior of the next."""
        rates = []
        for accepted, tried in zip(self._accepted.tolist(), self._tried.tolist(), strict=True):
            prior = (accepted + _PRIOR_WEIGHT * prior) / (tried + _PRIOR_WEIGHT)
            rates.append(prior)
        return rates


def _probability(log2_odds: float) -> float:
    return 1 / (1 + 2**-log2_odds)


def _kind(confidence: float) -> int:
    """The number of its octave, counted from the least."""
    log2_odds = log2(max(confidence, 1e-9) / max(1 - confidence, 1e-9))
    return max(0, min(_GREATEST - _LEAST, round(log2_odds) - _LEAST))
