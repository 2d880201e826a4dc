"""How likely the next draft token is to be accepted: a drafter's own confidence, calibrated as it goes."""

from collections import Counter, defaultdict
from collections.abc import Sequence as Rows
from math import log, log2, prod, sqrt

import numpy as np

MOST = 32  # the most tokens that are ever drafted, and positions that are told apart
# Confidences are told apart by their odds, and those by their octave: a match of twice the length is another.
_LEAST, _GREATEST = -4, 10
_OCTAVES = np.arange(_LEAST, _GREATEST + 1)
_UNKNOWN = len(_OCTAVES)  # the kind of a token of which nothing is known
_UNKNOWN_OCTAVE = 1.0
# By how many octaves a drafter may be off, either way, and how likely that is before anything is seen.
_SHIFTS = np.linspace(-6, 6, 25)
_BEFORE = np.exp(-0.5 * _SHIFTS**2)
_BEFORE /= _BEFORE.sum()
_ACCEPTED = 1 / (1 + 2 ** -(np.array([*_OCTAVES, _UNKNOWN_OCTAVE])[:, None] + _SHIFTS))  # `[kinds, shifts]`
_OUTCOMES = [list(1 - _ACCEPTED), list(_ACCEPTED)]  # how likely a token is rejected, and accepted
_HAZARD = 0.01  # the chance that the text has become another at a step: what was learnt holds no more
_ANEW = _HAZARD * _BEFORE
_FORGET = 0.995  # what is left of an observation after each later step
# Log of how much likelier the shift alone makes what happens, for what kinds learnt to be dropped.
_DOUBT = 5.0
_PRIOR_WEIGHT = 8.0  # observations that the prior counts for
_CHAINED_WEIGHT = 16.0  # those of the kind before, where kinds are alike
_TOLD_WEIGHT = 4.0  # outcomes that tell as much of a position as one confidence there, once it is calibrated
_LEAST_UNIT = 1e-6  # observations are kept in another one when it has shrunk below this


class Acceptance:
    """Learns from verified draft tokens how likely one is accepted, given that those before it were.

    What is known of a token is its drafter's confidence or, without one, its position, in a tree its depth.
    How far the drafter is off is one number for all tokens, the shift of their odds, of which a distribution
    is kept that expects abrupt changes (fixed share; Herbster and Warmuth, 1998). Beside it each octave of
    confidence, and each position, learns how it differs.
    """

    def __init__(self) -> None:
        self._by_position = _Rates(MOST)
        self._by_confidence = _Rates(len(_OCTAVES))
        self._after_confidence = _Rates(len(_OCTAVES))
        self._shift = _BEFORE
        self._doubt = 0.0  # evidence that what the kinds learnt is of another text
        self._estimate()

    def ahead(self, position: int, confidence: float | None) -> Rows[float]:
        """The probability that the token at a position is accepted, and of each that would follow it."""
        if confidence is None:
            return self._position_rates[position:]
        kind = _kind(confidence)
        return [self._confidence_rates[kind], *[self._following_rates[kind]] * (MOST - 1 - position)]

    def hoped(self, position: int) -> Rows[float]:
        """What `ahead` would say without a confidence if each were as high as it may well be.

        By one standard deviation, as far as each was seen itself.
        """
        return self._by_position.hoped(self._position_rates)[position:]

    def observe(
        self,
        confidences: Rows[float | None],
        num_accepted: int,
        parents: Rows[int] | None = None,
        path: Rows[int] | None = None,
        refused: tuple[int, float] | None = None,
    ) -> None:
        """Learn from a verified draft, of whose tokens these confidences were known.

        `parents` and `path` are those of a `Step`. What follows the text or an accepted token was tried: each
        for itself, given that token, was right or wrong. `refused`: the parent of a token that was not
        drafted, once its confidence was known, and the probability that it would have been accepted.

        Of a position where confidences were known they tell more than what became of the tokens, which is
        mostly luck; that they are calibrated is learnt apart.
        """
        accepted = range(num_accepted) if path is None else path
        position_after = {node: position for position, node in enumerate((-1, *accepted))}
        parents = range(-1, len(confidences) - 1) if parents is None else parents[: len(confidences)]
        tried = [node for node, parent in enumerate(parents) if parent in position_after]
        positions = [position_after[parents[node]] for node in tried]
        kinds = [_kind(confidences[node]) for node in tried]
        outcomes = [node in position_after for node in tried]
        likely = self._learn_shift(kinds, outcomes)
        self._forget(likely / self._likelihood(kinds, positions, outcomes))
        share = Counter(kinds)
        # By position, how likely one of its tokens was to be accepted.
        told: defaultdict[int, float] = defaultdict(float)
        for position, kind in zip(positions, kinds, strict=True):
            if kind != _UNKNOWN:
                told[position] += self._confidence_rates[kind]
        reached, before = -1, _UNKNOWN
        for position, kind, right in zip(positions, kinds, outcomes, strict=True):
            # Tokens of one kind in one draft fare alike: they tell less than as many of several drafts.
            weight = share[kind] ** -0.5
            if kind != _UNKNOWN:
                self._by_confidence.observe(kind, right, weight)
            if position > reached:  # the first of the position; any of them may have gone on
                went_on = position < num_accepted
                if position in told:
                    self._by_position.observe(position, min(1.0, told[position]), _TOLD_WEIGHT)
                else:
                    self._by_position.observe(position, went_on)
                if before != _UNKNOWN:
                    self._after_confidence.observe(before, went_on, weight)
                reached = position
            before = kind if right else before
        if refused is not None and position_after.get(refused[0]) == num_accepted > reached:
            self._by_position.observe(num_accepted, refused[1], _TOLD_WEIGHT)
            if before != _UNKNOWN:
                self._after_confidence.observe(before, refused[1])
        self._estimate()

    def _learn_shift(self, kinds: Rows[int], outcomes: Rows[bool]) -> float:
        """Weigh the shifts by how well they foretold a draft; return how likely they said it was."""
        likely = _ANEW + (1 - _HAZARD) * self._shift
        for kind, right in zip(kinds, outcomes, strict=True):
            likely *= _OUTCOMES[right][kind]
        total = float(likely.sum())
        self._shift = likely / total
        return total

    def _likelihood(self, kinds: Rows[int], positions: Rows[int], outcomes: Rows[bool]) -> float:
        """How likely a draft was, by all that was learnt."""
        rates = [
            self._position_rates[position] if kind == _UNKNOWN else self._confidence_rates[kind]
            for kind, position in zip(kinds, positions, strict=True)
        ]
        return prod(rate if right else 1 - rate for rate, right in zip(rates, outcomes, strict=True))

    def _forget(self, evidence: float) -> None:
        """Forget slowly; and at once what kinds learnt where it has come to mislead (Page's test, 1954)."""
        self._doubt = max(0.0, self._doubt + log(evidence))
        misled = self._doubt > _DOUBT
        self._doubt *= not misled
        for rates in (self._by_position, self._by_confidence, self._after_confidence):
            rates.forget(0.0 if misled else _FORGET)

    def _estimate(self) -> None:
        *by_confidence, self._unknown = (_ACCEPTED @ self._shift).tolist()
        self._confidence_rates = self._by_confidence.given(by_confidence)
        self._following_rates = self._after_confidence.given(self._confidence_rates)
        self._chained: list[float] = []  # until asked for

    @property
    def _position_rates(self) -> list[float]:
        self._chained = self._chained or self._by_position.chained(self._unknown)
        return self._chained


class _Rates:
    """Acceptance rates of several kinds of tokens, recent observations counting most."""

    def __init__(self, size: int) -> None:
        # In units of what is left of the first observation, so that forgetting touches none of them.
        self._accepted = [0.0] * size
        self._tried = [0.0] * size
        self._unit = 1.0

    def forget(self, kept: float) -> None:
        """Keep a share of what was observed."""
        self._unit *= kept
        if self._unit < _LEAST_UNIT:
            self._accepted = [self._unit * accepted for accepted in self._accepted]
            self._tried = [self._unit * tried for tried in self._tried]
            self._unit = 1.0

    def observe(self, kind: int, accepted: float, weight: float = 1.0) -> None:
        self._accepted[kind] += weight * accepted / self._unit
        self._tried[kind] += weight / self._unit

    def given(self, priors: Rows[float]) -> list[float]:
        """The rates; a kind that was hardly seen of late has about that of its prior."""
        unit = self._unit
        return [
            (unit * accepted + _PRIOR_WEIGHT * prior) / (unit * tried + _PRIOR_WEIGHT)
            for accepted, tried, prior in zip(self._accepted, self._tried, priors, strict=True)
        ]

    def chained(self, prior: float) -> list[float]:
        """The rates, where each kind is the prior of the next."""
        rates = []
        for accepted, tried in zip(self._accepted, self._tried, strict=True):
            prior = (self._unit * accepted + _CHAINED_WEIGHT * prior) / (self._unit * tried + _CHAINED_WEIGHT)
            rates.append(prior)
        return rates

    def hoped(self, rates: Rows[float]) -> list[float]:
        """Rates, each a standard deviation higher."""
        return [
            min(1.0, rate + sqrt(rate * (1 - rate) / (self._unit * tried + 1)))
            for rate, tried in zip(rates, self._tried, strict=True)
        ]


def _kind(confidence: float | None) -> int:
    """The number of its octave, counted from the least."""
    if confidence is None:
        return _UNKNOWN
    log2_odds = log2(max(confidence, 1e-9) / max(1 - confidence, 1e-9))
    return max(0, min(_GREATEST - _LEAST, round(log2_odds) - _LEAST))
