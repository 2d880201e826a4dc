"""A whole block of guesses from one pass, a distribution for each position given the text alone."""

from functools import cache

from draftwise.control.base import Limit
from draftwise.drafters.ahead import Next, likelihood
from draftwise.drafters.growth import ROOT, Shape, Tree
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler
from draftwise.types import Draft, Logits, Probs


def block_draft(logits: Logits, limit: Limit, sampler: Sampler, randomness: Randomness) -> Draft:
    """Draw one token from each position of `logits` `[positions, vocabulary]`, as far as the limit allows.

    The logits depend on the text alone; what each token is drawn from depends on those before it where there
    are controls.
    """
    drafted: list[int] = []
    drawn_from: list[Probs] = []
    for position in logits:
        ahead = Next(position, sampler.after(drafted))
        if not (ahead.confidence and limit.allows(len(drafted), ahead.confidence)):
            break
        drafted.append(ahead.draw(randomness))
        if ahead.probs is not None:
            drawn_from.append(ahead.probs)
    return Draft(tuple(drafted), drawn_from or None)


def block_tree(logits: Logits, shape: Shape, limit: Limit, sampler: Sampler) -> Draft:
    """Grow a tree of the likeliest tokens at each position, whatever comes before (Medusa, 2401.10774)."""

    @cache  # without controls all samplers are one, and each position is looked at once
    def ahead(depth: int, sampler: Sampler) -> Probs:
        return likelihood(logits[depth], sampler)

    tree = Tree()
    growth = shape.grow(tree, limit)
    depths = {ROOT: 0}
    try:
        nodes = next(growth)
        while True:
            for node in range(len(depths) - 1, len(tree)):
                depths[node] = depths[tree.parents[node]] + 1
            nodes = growth.send(
                [
                    ahead(depths[node], sampler.after(tree.path_to(node)))
                    for node in nodes
                    if depths[node] < len(logits)
                ]
            )
    except StopIteration as end:
        draft: Draft = end.value
        return draft
