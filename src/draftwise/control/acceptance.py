"""How likely the next draft token is to be accepted: a drafter's own confidence, calibrated as it goes."""

from collections.abc import Sequence as Rows
from math import exp, exp2, log, log2, prod, sqrt
from operator import mul

# All of it is plain Python, as it runs between passes over the model's weights, which leave nothing in the
# cache: the first call of anything is what takes the time, and that of an array library the most.

MOST = 32  # the most tokens that are ever drafted, and positions that are told apart
# Confidences are told apart by their odds, and those by their octave: a match of twice the length is another.
_LEAST, _GREATEST = -4, 10
_OCTAVES = range(_LEAST, _GREATEST + 1)
_UNKNOWN = len(_OCTAVES)  # the kind of a token of which nothing is known
_UNKNOWN_OCTAVE = 1.0
# By how many octaves a drafter may be off, either way, and how likely that is before anything is seen.
_SHIFTS = [number / 2 for number in range(-12, 13)]
_BELL = [exp(-0.5 * shift**2) for shift in _SHIFTS]
_BEFORE = [height / sum(_BELL) for height in _BELL]
# How likely a token of each kind is accepted, by the shift; and rejected.
_ACCEPTED = [
    [1 / (1 + exp2(-octave - shift)) for shift in _SHIFTS] for octave in (*_OCTAVES, _UNKNOWN_OCTAVE)
]
_OUTCOMES = [[[1 - chance for chance in chances] for chances in _ACCEPTED], _ACCEPTED]
_HAZARD = 0.01  # the chance that the text has become another at a step: what was learnt holds no more
_ANEW = [_HAZARD * chance for chance in _BEFORE]
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
        self._estimated: dict[int, float] = {}  # what is asked for between steps
        self._following: dict[int, float] = {}
        self._chained: list[float] = []

    def ahead(self, position: int, confidence: float | None) -> Rows[float]:
        """The probability that the token at a position is accepted, and of each that would follow it."""
        if confidence is None:
            return self._by_positions()[position:]
        kind = _kind(confidence)
        if kind not in self._following:
            # What follows one that was doubtful, and right, is no more doubtful than anything.
            prior = max(self._rate(kind), self._by_shift(_UNKNOWN))
            self._following[kind] = self._after_confidence.given(kind, prior)
        return [self._rate(kind), *[self._following[kind]] * (MOST - 1 - position)]

    def hoped(self, position: int) -> Rows[float]:
        """What `ahead` would say without a confidence if each were as high as it may well be.

        By one standard deviation, as far as each was seen itself.
        """
        return self._by_position.hoped(self._by_positions())[position:]

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
        tried = _tried(len(confidences), num_accepted, parents, path)
        kinds = [_kind(confidences[node]) for node, _, _ in tried]
        rates = [
            self._by_positions()[position] if kind == _UNKNOWN else self._rate(kind)
            for kind, (_, position, _) in zip(kinds, tried, strict=True)
        ]
        outcomes = [right for _, _, right in tried]
        likelihood = prod([rate if right else 1 - rate for rate, right in zip(rates, outcomes, strict=True)])
        self._forget(self._learn_shift(kinds, outcomes) / likelihood)
        told: dict[int, float] = {}  # by position, how likely one of its tokens was to be accepted
        for kind, rate, (_, position, _) in zip(kinds, rates, tried, strict=True):
            if kind != _UNKNOWN:
                told[position] = told.get(position, 0.0) + rate
        reached, before = -1, _UNKNOWN
        for kind, (_, position, right) in zip(kinds, tried, strict=True):
            # Tokens of one kind in one draft fare alike: they tell less than as many of several drafts.
            weight = kinds.count(kind) ** -0.5
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
        last = path[-1] if path else num_accepted - 1
        if refused is not None and refused[0] == last and num_accepted > reached:
            self._by_position.observe(num_accepted, refused[1], _TOLD_WEIGHT)
            if before != _UNKNOWN:
                self._after_confidence.observe(before, refused[1])
        self._estimated, self._following, self._chained = {}, {}, []

    def _learn_shift(self, kinds: Rows[int], outcomes: Rows[bool]) -> float:
        """Weigh the shifts by how well they foretold a draft; return how likely they said it was."""
        kept = 1 - _HAZARD
        likely = [anew + kept * chance for anew, chance in zip(_ANEW, self._shift, strict=True)]
        for kind, right in zip(kinds, outcomes, strict=True):
            likely = list(map(mul, likely, _OUTCOMES[right][kind]))
        total = sum(likely)
        self._shift = [chance / total for chance in likely]
        return total

    def _forget(self, evidence: float) -> None:
        """Forget slowly; and at once what kinds learnt where it has come to mislead (Page's test, 1954)."""
        self._doubt = max(0.0, self._doubt + log(evidence))
        misled = self._doubt > _DOUBT
        self._doubt *= not misled
        for rates in (self._by_position, self._by_confidence, self._after_confidence):
            rates.forget(0.0 if misled else _FORGET)

    def _rate(self, kind: int) -> float:
        """How likely a token is accepted whose confidence is of this kind."""
        if kind not in self._estimated:
            self._estimated[kind] = self._by_confidence.given(kind, self._by_shift(kind))
        return self._estimated[kind]

    def _by_positions(self) -> list[float]:
        """How likely a token is accepted at each position, where nothing else is known of it."""
        self._chained = self._chained or self._by_position.chained(self._by_shift(_UNKNOWN))
        return self._chained

    def _by_shift(self, kind: int) -> float:
        """What the shift alone says of a kind."""
        return sum(chance * likely for chance, likely in zip(_ACCEPTED[kind], self._shift, strict=True))


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

    def given(self, kind: int, prior: float) -> float:
        """The rate of a kind; one that was hardly seen of late has about that of its prior."""
        accepted, tried = self._unit * self._accepted[kind], self._unit * self._tried[kind]
        return (accepted + _PRIOR_WEIGHT * prior) / (tried + _PRIOR_WEIGHT)

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


def _tried(
    num_drafted: int, num_accepted: int, parents: Rows[int] | None, path: Rows[int] | None
) -> list[tuple[int, int, bool]]:
    """The guesses that follow the text or an accepted one: index, position, and whether each was right."""
    if parents is None:
        return [(node, node, node < num_accepted) for node in range(min(num_drafted, num_accepted + 1))]
    accepted = range(num_accepted) if path is None else path
    position_after = {node: position for position, node in enumerate((-1, *accepted))}
    return [
        (node, position_after[parent], node in position_after)
        for node, parent in enumerate(parents[:num_drafted])
        if parent in position_after
    ]


def _kind(confidence: float | None) -> int:
    """The number of its octave, counted from the least."""
    if confidence is None:
        return _UNKNOWN
    log2_odds = log2(max(confidence, 1e-9) / max(1 - confidence, 1e-9))
    return max(0, min(_GREATEST - _LEAST, round(log2_odds) - _LEAST))
