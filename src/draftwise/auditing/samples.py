"""Whether speculative samples could have come from plain decoding: their joint law, by the chain rule."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftwise.types import Probs

MIN_SAMPLES = 20  # after a text, for the tokens that follow it to be looked at
MIN_EXPECTED = 2.0  # of a token, to be told from the other rare ones
SIMULATIONS = 20_000
LEVEL = 1e-4  # of p-values: what sound code falls below once in so many audits

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Joint:
    """Samples of a few tokens against the target's law.

    `p_value`: how often plain decoding itself would be as far off. `texts`: after how many beginnings the
    next token was looked at. `drafted` and `accepted`: tokens, over all samples.
    """

    samples: int
    tokens: int
    drafted: int
    accepted: int
    texts: int
    p_value: float


@dataclass(frozen=True, slots=True)
class Counts:
    """The tokens that followed one text: how often each came, and how likely each is."""

    observed: NDArray[np.int64]
    probs: NDArray[np.float64]

    @classmethod
    def of(cls, counts: Counter[int], probs: Probs) -> "Counts":
        """`probs` `[vocabulary]`: of plain decoding. Rare tokens are counted together."""
        total = counts.total()
        likely = np.flatnonzero(probs * total >= MIN_EXPECTED)
        seen = np.array([counts[int(token_id)] for token_id in likely], np.int64)
        share = probs[likely].astype(np.float64)
        others = max(0.0, 1 - share.sum())
        return cls(np.append(seen, total - seen.sum()), np.append(share, others))


def followers(samples: Iterable[Tokens]) -> Iterator[tuple[Tokens, Counter[int]]]:
    """What came after each beginning that came often enough, the empty one first."""
    after: dict[Tokens, Counter[int]] = defaultdict(Counter)
    for sample in samples:
        for length, token_id in enumerate(sample):
            after[sample[:length]][token_id] += 1
    return ((before, counts) for before, counts in after.items() if counts.total() >= MIN_SAMPLES)


def p_value(tables: Sequence[Counts], seed: int, simulations: int = SIMULATIONS) -> float:
    """How likely the target itself is to give counts at least as far from what is expected.

    The distance is Pearson's, summed over all tables, and its law is simulated: given how often each text
    came, the tokens after it are independent draws from the target's distribution, whatever came elsewhere.
    """
    generator = np.random.default_rng(seed)
    observed, simulated = 0.0, np.zeros(simulations)
    for table in tables:
        total = int(table.observed.sum())
        share = table.probs / table.probs.sum()
        draws = generator.multinomial(total, share, simulations)
        observed += float(_distance(table.observed, total * share))
        simulated += _distance(draws, total * share)
    return float((1 + np.count_nonzero(simulated >= observed * (1 - 1e-12))) / (1 + simulations))


def _distance(counts: NDArray[np.int64], expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pearson's statistic along the last axis; infinite where what cannot be was seen."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(counts == expected, 0.0, (counts - expected) ** 2 / expected)
    total: NDArray[np.float64] = terms.sum(-1)
    return total
