"""A whole block of guesses from one pass, a distribution for each position given the text alone."""

from draftwise.control.base import Limit
from draftwise.drafters.draft_model import Next
from draftwise.drafters.growth import ROOT, Shape, Tree
from draftwise.randomness import Randomness
from draftwise.sampling import SamplingParams, adjusted_probs
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


def block_tree(logits: Logits, shape: Shape, limit: Limit, sampling: SamplingParams) -> Draft:
    """Grow a tree of the likeliest tokens at each position, whatever comes before (Medusa, 2401.10774)."""
    aheads = [likelihood(position, sampling) for position in logits]
    tree = Tree()
    growth = shape.grow(tree, limit)
    depths = {ROOT: 0}
    try:
        nodes = next(growth)
        while True:
            for node in range(len(depths) - 1, len(tree)):
                depths[node] = depths[tree.parents[node]] + 1
            nodes = growth.send([aheads[depths[node]] for node in nodes if depths[node] < len(aheads)])
    except StopIteration as end:
        draft: Draft = end.value
        return draft


def likelihood(logits: Logits, sampling: SamplingParams) -> Probs:
    """How likely each token is to follow; of a greedy row, too, by the drafter's softmax."""
    return adjusted_probs(logits, sampling if sampling.temperature else SamplingParams(1.0))
