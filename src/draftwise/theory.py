"""The closed forms of Leviathan, Kalman and Matias (2211.17192, section 3, A.2, A.5): numbers in and out.

`alpha`: the acceptance rate α, in [0, 1]; or, where acceptance varies along a draft, one rate for each of
its positions: the probability that the draft token there is accepted, given that those before it were.
`num_draft_tokens`: γ, 0 or more. `cost`: the cost coefficient c, the time of one drafter pass over that of
one target pass. With one α, each draft token is accepted independently; but for `measured_speedup`, the
target scores γ + 1 positions in the time of one. All raise OptionError for a number out of its range.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import inf
from operator import mul

import numpy as np

from draftwise.errors import OptionError
from draftwise.types import Probs

Alpha = float | Sequence[float]
SecondsOf = Callable[[int], float]  # the time of something by its size


def survival(alpha: Alpha, num_draft_tokens: int) -> list[float]:
    """Probability that the first 0, 1, ..., γ tokens of a draft are all accepted: `γ + 1` numbers.

    Raises OptionError where there are fewer rates than draft tokens.
    """
    _check(num_draft_tokens=num_draft_tokens)
    rates = [alpha] * max(1, num_draft_tokens) if isinstance(alpha, int | float) else list(alpha)
    for rate in rates:
        if not 0 <= rate <= 1:
            raise OptionError(f"alpha is {rate}; an acceptance rate is between 0 and 1.")
    if len(rates) < num_draft_tokens:
        raise OptionError(
            f"alpha has rates for {len(rates)} positions of a draft, but num_draft_tokens is "
            f"{num_draft_tokens}; give a rate for each."
        )
    return list(accumulate(rates[:num_draft_tokens], mul, initial=1.0))


def expected_tokens(alpha: Alpha, num_draft_tokens: int) -> float:
    """Tokens emitted for one target pass: 1 + α + ... + α^γ = (1 - α^(γ+1)) / (1 - α) (equation 1, Figure 2).

    Without a limit to γ it is 1 / (1 - α), which is `oracle_speedup(alpha, 0)`.
    """
    return sum(survival(alpha, num_draft_tokens))


def measured_speedup(
    alpha: Alpha, num_draft_tokens: int, pass_seconds: SecondsOf, draft_seconds: SecondsOf
) -> float:
    """Theorem 3.8 where a wider pass takes longer: E[tokens] · T(1) / (drafting γ tokens + T(γ + 1)).

    `pass_seconds`: T(n), of one target pass over n positions. `draft_seconds`: of a draft of n tokens.
    """
    seconds = (draft_seconds(num_draft_tokens) if num_draft_tokens else 0.0) + pass_seconds(
        num_draft_tokens + 1
    )
    return expected_tokens(alpha, num_draft_tokens) * pass_seconds(1) / seconds


def speedup(alpha: Alpha, num_draft_tokens: int, cost: float = 0.0) -> float:
    """Factor by which the wall time shrinks (Theorem 3.8); 1 without a draft."""
    _check(cost=cost)
    return measured_speedup(alpha, num_draft_tokens, lambda width: 1.0, lambda length: cost * length)


def guaranteed_speedup(alpha: float, cost: float) -> float:
    """(1 + α) / (1 + c): where α > c, the best γ gains at least this (Corollary 3.9)."""
    return speedup(alpha, 1, cost)


def operations(alpha: Alpha, num_draft_tokens: int, operations_cost: float = 0.0) -> float:
    """Factor by which arithmetic operations grow (Theorem 3.11); 1 without a draft.

    `operations_cost`: ĉ, the operations of the drafter for one token over those of the target.
    """
    _check(operations_cost=operations_cost)
    spent = num_draft_tokens * operations_cost + num_draft_tokens + 1
    return spent / expected_tokens(alpha, num_draft_tokens)


def memory_accesses(alpha: Alpha, num_draft_tokens: int, memory_cost: float = 0.0) -> float:
    """Factor by which reads of weights and cache change, below 1 where they shrink (section 3.4).

    The target's are read once for each pass. `memory_cost`: what the drafter reads for one token over what
    the target reads for a pass, which the paper leaves out.
    """
    _check(memory_cost=memory_cost)
    return (num_draft_tokens * memory_cost + 1) / expected_tokens(alpha, num_draft_tokens)


def optimal_num_draft_tokens(alpha: Alpha, cost: float, limit: int = 64) -> int:
    """The γ from 0 to `limit` with the largest speed-up, the smallest of them on a tie (Figure 3).

    Without a limit there is none where drafting is free, or where every token is accepted.
    """
    _check(limit=limit)
    return max(range(limit + 1), key=lambda num_draft_tokens: speedup(alpha, num_draft_tokens, cost))


def measured_optimum(alpha: Alpha, pass_seconds: SecondsOf, draft_seconds: SecondsOf, limit: int = 64) -> int:
    """The γ from 0 to `limit` with the largest `measured_speedup`, the smallest of them on a tie."""
    _check(limit=limit)
    return max(
        range(limit + 1),
        key=lambda num_draft_tokens: measured_speedup(alpha, num_draft_tokens, pass_seconds, draft_seconds),
    )


def oracle_speedup(alpha: float, cost: float) -> float:
    """Speed-up if each draft were exactly as long as what will be accepted: a bound on any choice of lengths.

    A draft of N tokens has E[N] = α / (1 - α), so the factor is 1 / (1 - α + cα) (section 3.5, derived).
    """
    survival(alpha, 0)
    _check(cost=cost)
    time_per_token = 1 - alpha + cost * alpha
    return 1 / time_per_token if time_per_token > 0 else inf


def acceptance_rate(target_probs: Probs, draft_probs: Probs, lenience: float = 1.0) -> float:
    """Σ min(p / l, q): the probability that a token drawn from q is accepted (Corollary 3.6; A.5 for l < 1).

    Both are one position's distribution; widths may differ, and a token that one lacks has probability zero.
    The mean over positions of a text that the target generates estimates α. `lenience`: l, above 0 and up to
    1, where 1 is the exact rule.
    """
    if not 0 < lenience <= 1:
        raise OptionError(f"lenience is {lenience}; give a number above 0 and up to 1, where 1 is exact.")
    shared = min(len(target_probs), len(draft_probs))
    accepted = np.minimum(target_probs[:shared] / lenience, draft_probs[:shared])
    return float(accepted.sum(dtype=np.float64))


def divergence(target_probs: Probs, draft_probs: Probs) -> float:
    """D_LK(p, q) = 1 - Σ min(p, q), the total variation distance (Definition 3.2, Lemma 3.3)."""
    return 1 - acceptance_rate(target_probs, draft_probs)


def one_shot_rejection_rate(target_probs: Probs, draft_probs: Probs) -> float:
    """min q / p: how often rejection sampling that tries once accepts; never more than Σ min(p, q) (A.2)."""
    shared = min(len(target_probs), len(draft_probs))
    if np.any(target_probs[shared:] > 0):
        return 0.0
    p, q = target_probs[:shared].astype(np.float64), draft_probs[:shared]
    return min(1.0, float(np.min(q[p > 0] / p[p > 0])))


def _check(**at_least_zero: float) -> None:
    for name, number in at_least_zero.items():
        if not 0 <= number < inf:
            raise OptionError(f"{name} is {number}; give 0 or a positive finite number.")
