"""A whole block of guesses from one pass, a distribution for each position given the text alone."""

from draftwise.control.base import Limit
from draftwise.drafters.draft_model import Next
from draftwise.randomness import Randomness
from draftwise.sampling import SamplingParams
from draftwise.types import Draft, Logits, Probs


def block_draft(logits: Logits, limit: Limit, sampling: SamplingParams, randomness: Randomness) -> Draft:
    """Draw one token from each position of `logits` `[positions, vocabulary]`, as far as the limit allows.

    The tokens are independent given the text, so that each one's marginal distribution is also the one it
    was drawn from given those before it.
    """
    drafted: list[int] = []
    drawn_from: list[Probs] = []
    for position in logits:
        ahead = Next(position, sampling)
        if not limit.allows(len(drafted), ahead.confidence):
            break
        drafted.append(ahead.draw(randomness))
        if ahead.probs is not None:
            drawn_from.append(ahead.probs)
    return Draft(tuple(drafted), drawn_from or None)
