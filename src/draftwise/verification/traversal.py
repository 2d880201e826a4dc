"""Block verification, and what it becomes on a tree: traversal verification."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from draftwise.randomness import Randomness
from draftwise.types import Draft, Probs, Verdict
from draftwise.verification.residual import drawn_from, excess, likelihood_ratio


@dataclass(slots=True)
class _Node:
    """A place where the draft may end: a drafted token, or -1 for the text before the draft."""

    index: int
    reach: float  # the probability of accepting the path to here, given that no longer one was accepted
    target_probs: Probs  # p, and what the children rejected so far have left of it
    untested: Iterator[int]  # its other children

    def reject(self, draft_probs: Probs) -> None:
        """Take from this node what a child drawn from `draft_probs` could have accepted."""
        rest = excess(self.target_probs, draft_probs, self.reach)
        mass = float(rest.sum())
        if mass > 0:
            self.target_probs = rest / mass
            self.reach = mass / (mass + (1 - self.reach))  # so bracketed, the root stays at exactly 1
        elif self.reach < 1:  # at 1, p and q are equal as far as the dtype can tell: nothing is taken
            self.reach = 0.0


def traversal(
    draft: Draft, target_probs: Sequence[Probs], acceptance: Randomness, recovery: Randomness
) -> Verdict:
    """Test whole paths, the longest first, from the first leaf of a tree back to its root.

    A token less likely than it was drafted may be followed by some that are likelier, and then the path is
    kept: in expectation at least as much of a draft as recursive rejection keeps. On a chain it is block
    verification (2403.10444), which no rule that looks at the same distributions beats; on a tree it is
    traversal verification (2505.12398). `target_probs`: as for `verify`; what lies behind a token that the
    target cannot emit is not looked at.
    """
    children = draft.children()
    path = [_Node(-1, 1.0, target_probs[0], iter(children[0]))]
    while True:
        node = path[-1]
        child = next(node.untested, None)
        if child is not None:
            p = node.target_probs
            q = drawn_from(draft, child, p)
            reach = min(1.0, node.reach * likelihood_ratio(draft.token_ids[child], p, q))
            if reach > 0:
                path.append(_Node(child, reach, target_probs[child + 1], iter(children[child + 1])))
            else:
                node.reject(q)
        elif acceptance.accept(node.reach):
            return Verdict(tuple(each.index for each in path[1:]), recovery.sample(node.target_probs))
        else:
            path.pop()
            parent = path[-1]
            parent.reject(drawn_from(draft, node.index, parent.target_probs))
