"""What the rules have in common: the ratio p / q of a drafted token, and what a rejection leaves of p."""

import numpy as np

from draftwise.errors import DraftError
from draftwise.sampling import point_mass
from draftwise.types import Draft, Probs


def drawn_from(draft: Draft, index: int, target_probs: Probs) -> Probs:
    """The distribution q of one drafted token; of a deterministic guess a point mass, in the dtype of p."""
    if draft.probs is not None:
        return draft.probs[index]
    token_id = draft.token_ids[index]
    return point_mass(token_id, token_id + 1, target_probs.dtype)


def likelihood_ratio(token_id: int, target_probs: Probs, draft_probs: Probs) -> float:
    """p / q of a token drawn from `draft_probs`; raises DraftError where q is zero there."""
    drawn_with = _probability(token_id, draft_probs)
    if not drawn_with > 0:
        raise DraftError(
            f"the draft holds token {token_id}, whose probability in its own distribution is {drawn_with}; "
            "a drafter must hand over the very distribution that it sampled from."
        )
    return _probability(token_id, target_probs) / drawn_with


def acceptance_probability(
    token_id: int, target_probs: Probs, draft_probs: Probs, lenience: float = 1.0
) -> float:
    """min(1, p / (l q)) of a token drawn from `draft_probs`; raises DraftError where q is zero there."""
    return min(1.0, likelihood_ratio(token_id, target_probs, draft_probs) / lenience)


def excess(target_probs: Probs, draft_probs: Probs, reach: float = 1.0) -> Probs:
    """max(0, reach · p - q), as wide as p and in its dtype."""
    shared = min(len(target_probs), len(draft_probs))
    rest: Probs = target_probs * reach
    rest[:shared] -= draft_probs[:shared]
    np.maximum(rest, 0, out=rest)
    return rest


def residual(target_probs: Probs, draft_probs: Probs) -> Probs:
    """norm(max(0, p - q)): what a rejected token is replaced from, as wide as p and in its dtype.

    Where rounding leaves nothing of it, p and q are equal as far as the dtype can tell: p takes its place.
    """
    rest = excess(target_probs, draft_probs)
    mass = rest.sum()
    return rest / mass if mass > 0 else target_probs


def _probability(token_id: int, probs: Probs) -> float:
    return float(probs[token_id]) if token_id < len(probs) else 0.0
