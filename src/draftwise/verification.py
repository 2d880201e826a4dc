"""Exact acceptance rules: how much of a draft is kept, so that the output has the target's distribution."""

from collections.abc import Sequence

import numpy as np

from draftwise.errors import DraftError
from draftwise.randomness import Randomness
from draftwise.sampling import point_mass
from draftwise.types import Draft, Probs, Verdict


def verify(
    draft: Draft, target_probs: Sequence[Probs], acceptance: Randomness, recovery: Randomness
) -> Verdict:
    """Accept draft tokens one by one, then add one token of the target's own (Algorithm 1 of 2211.17192).

    `target_probs`: `len(draft) + 1` adjusted distributions, the i-th given the first i tokens of the draft;
    those after a rejection are not looked at. The two vocabularies may differ in size: a token that one of
    them lacks has probability zero there. A deterministic draft is a draft from point masses. Raises
    DraftError for a drafted token that its own distribution says could not be drawn.
    """
    for position, token_id in enumerate(draft.token_ids):
        p = target_probs[position]
        q = draft.probs[position] if draft.probs is not None else point_mass(token_id, token_id + 1, p.dtype)
        if not acceptance.accept(acceptance_probability(token_id, p, q)):
            return Verdict(position, recovery.sample(residual(p, q)))
    return Verdict(len(draft), recovery.sample(target_probs[len(draft)]))


def acceptance_probability(token_id: int, target_probs: Probs, draft_probs: Probs) -> float:
    """min(1, p / q) of a token drawn from `draft_probs`; raises DraftError where q is zero there."""
    drawn_with = _probability(token_id, draft_probs)
    if not drawn_with > 0:
        raise DraftError(
            f"the draft holds token {token_id}, whose probability in its own distribution is {drawn_with}; "
            "a drafter must hand over the very distribution that it sampled from."
        )
    return min(1.0, _probability(token_id, target_probs) / drawn_with)


def residual(target_probs: Probs, draft_probs: Probs) -> Probs:
    """norm(max(0, p - q)): what a rejected token is replaced from, as wide as p and in its dtype.

    Where rounding leaves nothing of it, p and q are equal as far as the dtype can tell: p takes its place.
    """
    shared = min(len(target_probs), len(draft_probs))
    rest = target_probs.copy()
    rest[:shared] -= draft_probs[:shared]
    np.maximum(rest, 0, out=rest)
    mass = rest.sum()
    return rest / mass if mass > 0 else target_probs


def _probability(token_id: int, probs: Probs) -> float:
    return float(probs[token_id]) if token_id < len(probs) else 0.0
