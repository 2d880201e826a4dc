"""Token-wise verification, and what it becomes on a tree: recursive rejection."""

from collections.abc import Sequence

from draftwise.randomness import Randomness
from draftwise.types import Draft, Probs, Verdict
from draftwise.verification.residual import acceptance_probability, drawn_from, residual


def recursive_rejection(
    draft: Draft,
    target_probs: Sequence[Probs],
    acceptance: Randomness,
    recovery: Randomness,
    lenience: float = 1.0,
) -> Verdict:
    """Test the guesses at a position in the order drawn; go on below the first that is accepted.

    Each is accepted with probability min(1, p / q), and a rejected one leaves the residual in place of p. On
    a chain that is Algorithm 1 of 2211.17192; on a tree it is multi-step speculative sampling (SpecInfer,
    2305.09781) where siblings are drawn with replacement, and its refinement without (Sequoia, 2402.12374).
    `target_probs`: as for `verify`; those after a rejection are not looked at.

    A `lenience` l below 1 gives up exactness for speed: a token is accepted with probability
    min(1, p / (l q)) (2211.17192, A.5). No token is then emitted with probability above p / l, but likely
    ones of the draft crowd others out. The residual is the exact rule's, norm(max(0, p - q)): of all that
    could follow a rejection, it keeps the output nearest to p. Under greedy decoding p is 0 or 1, and l
    changes nothing.
    """
    children = draft.children()
    path: list[int] = []
    node = -1
    while True:
        p = target_probs[node + 1]
        for child in children[node + 1]:
            q = drawn_from(draft, child, p)
            if acceptance.accept(acceptance_probability(draft.token_ids[child], p, q, lenience)):
                path.append(child)
                node = child
                break
            p = residual(p, q)
        else:
            return Verdict(tuple(path), recovery.sample(p))
