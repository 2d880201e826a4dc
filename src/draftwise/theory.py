"""The closed forms of Leviathan, Kalman and Matias (2211.17192, section 3): numbers in, numbers out.

`alpha`: the acceptance rate α, in [0, 1]. `num_draft_tokens`: γ, 0 or more. `cost`: the cost coefficient c,
the time of one drafter pass over that of one target pass. All assume that each draft token is accepted
independently with probability α, and that the target scores γ + 1 positions in the time of one. All raise
OptionError for a number out of its range.
"""

from math import inf

import numpy as np

from draftwise.errors import OptionError
from draftwise.types import Probs


def expected_tokens(alpha: float, num_draft_tokens: int) -> float:
    """Tokens emitted for one target pass: 1 + α + ... + α^γ = (1 - α^(γ+1)) / (1 - α) (equation 1)."""
    _check(alpha=alpha, num_draft_tokens=num_draft_tokens)
    return sum(alpha**accepted for accepted in range(num_draft_tokens + 1))


def speedup(alpha: float, num_draft_tokens: int, cost: float = 0.0) -> float:
    """Factor by which the wall time shrinks (Theorem 3.8); 1 without a draft."""
    _check(cost=cost)
    return expected_tokens(alpha, num_draft_tokens) / (num_draft_tokens * cost + 1)


def operations(alpha: float, num_draft_tokens: int, operations_cost: float = 0.0) -> float:
    """Factor by which arithmetic operations grow (Theorem 3.11); 1 without a draft.

    `operations_cost`: ĉ, the operations of the drafter for one token over those of the target.
    """
    _check(operations_cost=operations_cost)
    spent = num_draft_tokens * operations_cost + num_draft_tokens + 1
    return spent / expected_tokens(alpha, num_draft_tokens)


def optimal_num_draft_tokens(alpha: float, cost: float, limit: int = 64) -> int:
    """The γ from 0 to `limit` with the largest speed-up, the smallest of them on a tie (Figure 3).

    Without a limit there is none where drafting is free, or where every token is accepted.
    """
    _check(limit=limit)
    return max(range(limit + 1), key=lambda num_draft_tokens: speedup(alpha, num_draft_tokens, cost))


def oracle_speedup(alpha: float, cost: float) -> float:
    """Speed-up if each draft were exactly as long as what will be accepted: a bound on any choice of lengths.

    A draft of N tokens has E[N] = α / (1 - α), so the factor is 1 / (1 - α + cα) (section 3.5, derived).
    """
    _check(alpha=alpha, cost=cost)
    time_per_token = 1 - alpha + cost * alpha
    return 1 / time_per_token if time_per_token > 0 else inf


def acceptance_rate(target_probs: Probs, draft_probs: Probs) -> float:
    """Σ min(p, q): the probability that a token drawn from q is accepted (Corollary 3.6).

    Both are one position's distribution; widths may differ, and a token that one lacks has probability zero.
    """
    shared = min(len(target_probs), len(draft_probs))
    return float(np.minimum(target_probs[:shared], draft_probs[:shared]).sum(dtype=np.float64))


def divergence(target_probs: Probs, draft_probs: Probs) -> float:
    """D_LK(p, q) = 1 - Σ min(p, q), the total variation distance (Definition 3.2, Lemma 3.3)."""
    return 1 - acceptance_rate(target_probs, draft_probs)


def _check(alpha: float = 0.0, **at_least_zero: float) -> None:
    if not 0 <= alpha <= 1:
        raise OptionError(f"alpha is {alpha}; an acceptance rate is between 0 and 1.")
    for name, number in at_least_zero.items():
        if not 0 <= number < inf:
            raise OptionError(f"{name} is {number}; give 0 or a positive finite number.")
