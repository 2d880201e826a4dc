"""How a tree of guesses grows: of a given shape, or to where the drafter is confident."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Protocol, Self, runtime_checkable

from draftwise.checks import whole_number
from draftwise.control.base import Limit
from draftwise.errors import OptionError
from draftwise.randomness import Randomness
from draftwise.sampling import likeliest
from draftwise.types import Draft, Probs, path_to

ROOT = -1  # the text before the draft

# Yields nodes, and is sent the distribution after each of them; where there is no room to ask, an empty list.
Growth = Generator[Sequence[int], Sequence[Probs], Draft]


@dataclass(slots=True)
class Tree:
    """Guesses so far. `randomness`: draws siblings without replacement; None takes the likeliest tokens."""

    randomness: Randomness | None = None
    token_ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    probs: list[Probs] = field(default_factory=list)  # what each drawn token was drawn from

    def __len__(self) -> int:
        return len(self.token_ids)

    def add(self, parent: int, token_id: int, probs: Probs | None = None) -> int:
        """Add a guess and return its index; `probs`: what it was drawn from."""
        self.token_ids.append(token_id)
        self.parents.append(parent)
        if probs is not None:
            self.probs.append(probs)
        return len(self) - 1

    def lineage(self, nodes: Sequence[int]) -> list[int]:
        """The nodes and all that they descend from, those asked for last and in their order."""
        above: set[int] = set()
        for node in nodes:
            while (node := self.parents[node]) != ROOT:
                above.add(node)
        return [*sorted(above), *nodes]

    def path_to(self, node: int) -> list[int]:
        """As `Draft.path_to`."""
        return path_to(node, self.token_ids, self.parents)

    def draft(self) -> Draft:
        return Draft(tuple(self.token_ids), self.probs or None, tuple(self.parents))


@runtime_checkable
class Shape(Protocol):
    """How far a tree grows, and where."""

    num_draft_tokens: int  # the most guesses that it has
    most_fed: int  # the most nodes that `Tree.lineage` has of what it asks for

    def grow(self, tree: Tree, limit: Limit) -> Growth:
        """Grow an empty tree and return the draft."""
        ...


class StaticTree:
    """A tree of the same shape at every step, filled with the likeliest tokens or with drawn ones."""

    def __init__(self, parents: Sequence[int]) -> None:
        """`parents`: for each guess the index of its parent, -1 for the text; raises DraftError, as Draft."""
        self.parents = tuple(parents)
        Draft((0,) * len(self.parents), None, self.parents)
        self.num_draft_tokens = self.most_fed = len(self.parents)

    @classmethod
    def branching(cls, *widths: int) -> Self:
        """Each guess at the first depth, and each at the next, has as many siblings: (2, 2) has 6 guesses."""
        paths = [path for depth in range(len(widths)) for path in product(*map(range, widths[: depth + 1]))]
        return cls.choices(paths)

    @classmethod
    def choices(cls, paths: Sequence[Sequence[int]]) -> Self:
        """A path of ranks for each guess, as Medusa gives its trees (2401.10774).

        (0, 2) is the third likeliest token after the likeliest one. Raises OptionError where a path comes
        before the one that it goes on from or before a likelier sibling.
        """
        nodes: dict[tuple[int, ...], int] = {(): ROOT}
        parents: list[int] = []
        for path in map(tuple, paths):
            *before, rank = path
            if tuple(before) not in nodes or (rank and (*before, rank - 1) not in nodes):
                raise OptionError(
                    f"the tree has {path} before its parent or a likelier sibling; list those first."
                )
            nodes[path] = len(parents)
            parents.append(nodes[tuple(before)])
        return cls(parents)

    @classmethod
    def calibrated(cls, accuracies: Sequence[Sequence[float]], num_draft_tokens: int) -> Self:
        """The tree of which most guesses are accepted, by how often a guess was right (2401.10774, 2.3.3).

        `accuracies`: for each position, then for each rank, how often the guess of that rank was the token.
        A path is worth their product; the likeliest guesses are taken one by one, each beside or below those
        there are.
        """
        whole_number("num_draft_tokens", num_draft_tokens, least=1)

        def worth(path: tuple[int, ...]) -> float:
            return prod(float(accuracies[depth][rank]) for depth, rank in enumerate(path))

        taken: list[tuple[int, ...]] = []
        frontier: list[tuple[int, ...]] = [(0,)]
        while frontier and len(taken) < num_draft_tokens:
            path = max(frontier, key=worth)
            frontier.remove(path)
            taken.append(path)
            next_ones = (*path[:-1], path[-1] + 1), (*path, 0)
            frontier += [
                each
                for each in next_ones
                if len(each) <= len(accuracies) and each[-1] < len(accuracies[len(each) - 1])
            ]
        return cls.choices(taken)

    def grow(self, tree: Tree, limit: Limit) -> Growth:
        children = Draft((0,) * len(self.parents), None, self.parents).children()
        level = [(ROOT, ROOT)]  # nodes of the shape, and of the tree
        depth = 0
        while level := [pair for pair in level if children[pair[0] + 1]]:
            if not limit.allows(len(tree), None, level[0][1]):
                break
            aheads = yield [node for _, node in level]
            below: list[tuple[int, int]] = []
            for (place, node), ahead in zip(level, aheads, strict=False):
                left = 1.0  # the probability that none of the siblings so far is right
                for child in children[place + 1]:
                    if not ahead.any():  # all that could follow is guessed
                        break
                    if not limit.allows(len(tree), left * float(ahead.max()), node):
                        return tree.draft()
                    if tree.randomness:
                        token_id = tree.randomness.ahead(depth).sample(ahead)
                        below.append((child, tree.add(node, token_id, ahead)))
                    else:
                        token_id = int(ahead.argmax())
                        below.append((child, tree.add(node, token_id)))
                    left *= 1 - float(ahead[token_id])
                    ahead = _without(token_id, ahead)
            level = below
            depth += 1
        return tree.draft()


def _without(token_id: int, probs: Probs) -> Probs:
    """What is left of a distribution without one token; nothing where it was the only one."""
    rest = probs.copy()
    rest[token_id] = 0
    mass = rest.sum()
    return rest / mass if mass > 0 else rest


class DynamicTree:
    """The likeliest paths, as many as are asked for (EAGLE-2, 2406.16858, section 4).

    Depth by depth the `width` likeliest paths go on with the `width` likeliest tokens each; of all these the
    `num_draft_tokens` likeliest are the draft. Always deterministic: a drawn token must not be left out for
    its value. How likely a path is says the product of the drafter's own probabilities.
    """

    def __init__(self, num_draft_tokens: int = 24, width: int = 8, depth: int = 6) -> None:
        for name, value in (("num_draft_tokens", num_draft_tokens), ("width", width), ("depth", depth)):
            whole_number(name, value, least=1)
        self.num_draft_tokens = num_draft_tokens
        self.width = width
        self.depth = depth
        self.most_fed = width * depth

    def grow(self, tree: Tree, limit: Limit) -> Growth:
        likelihood = {ROOT: 1.0}
        level, kept, place = [ROOT], Tree(), {ROOT: ROOT}
        for _ in range(self.depth):
            # What follows a guess is no likelier: in the draft it comes after it.
            above = place[level[0]] if level else self.num_draft_tokens
            if above + 1 >= self.num_draft_tokens or not limit.allows(above + 1, None, above):
                break
            aheads = yield level
            below: set[int] = set()
            for node, ahead in zip(level, aheads, strict=False):
                for token_id in likeliest(ahead, self.width, above=0):
                    likely = likelihood[node] * float(ahead[token_id])
                    if likely > 0:
                        below.add(tree.add(node, token_id))
                        likelihood[len(tree) - 1] = likely
            ranking = sorted(range(len(tree)), key=lambda node: -likelihood[node])[: self.num_draft_tokens]
            kept, place = _allowed(tree, ranking, likelihood, limit)
            # Nor does anything follow, in the draft, what is not in it.
            level = [node for node in place if node in below][: self.width]
        return kept.draft()


def _allowed(
    tree: Tree, ranking: Sequence[int], likelihood: dict[int, float], limit: Limit
) -> tuple[Tree, dict[int, int]]:
    """The likeliest guesses, as far as the limit allows, and where each of them is in that tree.

    A parent is never less likely than its children.
    """
    kept, place = Tree(), {ROOT: ROOT}
    for node in ranking:
        parent = tree.parents[node]
        if not limit.allows(len(kept), min(1.0, likelihood[node] / likelihood[parent]), place[parent]):
            break
        place[node] = kept.add(place[parent], tree.token_ids[node])
    return kept, place
