"""Grow a draft where the next guess is likeliest: a chain where there is one guess at a time, else a tree."""

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count
from typing import TypeVar

from draftwise.control.base import Limit
from draftwise.drafters.growth import ROOT, Tree
from draftwise.errors import UnsupportedError
from draftwise.models.base import LanguageModel
from draftwise.types import Draft

Place = TypeVar("Place")


def likeliest_paths(
    place: Place,
    following: Callable[[Place, int], Iterable[tuple[float, int, Place]]],
    branching: int,
    limit: Limit,
) -> Draft:
    """Add the guess on the likeliest path that there is, one after another, until the limit refuses one.

    `following`: from a place and its depth the guesses that come next, at most `branching` of them, each with
    how likely it is and the place after it.
    """
    tree, order = Tree(), count()
    waiting: list[tuple[float, int, float, int, int, int, Place]] = []

    def look(likelihood: float, node: int, depth: int, place: Place) -> None:
        for likely, token_id, after in following(place, depth):
            heappush(waiting, (-likelihood * likely, next(order), likely, node, depth + 1, token_id, after))

    look(1.0, ROOT, 0, place)
    while waiting:
        likelihood, _, likely, parent, depth, token_id, place = heappop(waiting)
        if not limit.allows(len(tree), likely, parent):
            break
        look(-likelihood, tree.add(parent, token_id), depth, place)
    return tree.draft() if branching > 1 else Draft(tuple(tree.token_ids))


def refuse_branching(branching: int, target: LanguageModel) -> None:
    """Raise UnsupportedError for guesses beside one another where the target cannot score them."""
    if branching > 1 and not target.scores_trees:
        raise UnsupportedError(
            f"{target.name} cannot score trees; load it with engine='torch', or leave branching at 1."
        )
