"""Typical acceptance, from Medusa: lossy, as it keeps what is plausible, not the distribution."""

from collections.abc import Sequence

import numpy as np

from draftwise.randomness import Randomness
from draftwise.types import Draft, Probs, Verdict

EPSILON, DELTA = 0.09, 0.3  # the posterior_threshold and posterior_alpha of Medusa's own code


def typical(
    draft: Draft, target_probs: Sequence[Probs], acceptance: Randomness, recovery: Randomness
) -> Verdict:
    """Keep the longest path of plausible tokens, on a tie the likeliest; then draw one from the target.

    A token is plausible if p > min(ε, δ exp(-H(p))), H the entropy (2401.10774, section 3.1). The output does
    not have the target's distribution, but at temperature 0, where it is greedy decoding's. `target_probs`:
    as for `verify`.
    """
    children = draft.children()
    reached: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    for path, score in reached:  # which grows meanwhile
        node = path[-1] if path else -1
        p = target_probs[node + 1]
        for child in children[node + 1]:
            token_id = draft.token_ids[child]
            if token_id < len(p) and p[token_id] > threshold(p):
                reached.append(((*path, child), score + float(np.log(p[token_id]))))
    path, _ = max(reached, key=lambda each: (len(each[0]), each[1]))
    return Verdict(path, recovery.sample(target_probs[path[-1] + 1 if path else 0]))


def threshold(probs: Probs) -> float:
    """What the probability of a plausible token exceeds: less where the target is undecided."""
    some = probs[probs > 0].astype(np.float64)
    entropy = -float(some @ np.log(some))
    return min(EPSILON, DELTA * float(np.exp(-entropy)))
