"""Exact acceptance rules: how much of a draft is kept, so that the output has the target's distribution."""

from collections.abc import Callable, Sequence

from draftwise.errors import OptionError
from draftwise.randomness import Randomness
from draftwise.types import Draft, Probs, Verdict
from draftwise.verification.matching import matching
from draftwise.verification.rejection import recursive_rejection
from draftwise.verification.residual import acceptance_probability, residual
from draftwise.verification.traversal import traversal

__all__ = [
    "RULES",
    "Rule",
    "acceptance_probability",
    "find_rule",
    "matching",
    "recursive_rejection",
    "residual",
    "traversal",
    "verify",
]

Rule = Callable[[Draft, Sequence[Probs], Randomness, Randomness], Verdict]


def verify(
    draft: Draft, target_probs: Sequence[Probs], acceptance: Randomness, recovery: Randomness
) -> Verdict:
    """Accept part of a draft and add one token of the target's own, by the best exact rule for the draft.

    `target_probs`: `len(draft) + 1` adjusted distributions, the first of the token after the text, then of
    the one after each token of the draft. The two vocabularies may differ in size: a token that one of them
    lacks has probability zero there. Raises DraftError for a drafted token that its own distribution says
    could not be drawn.
    """
    rule = matching if draft.probs is None else traversal
    return rule(draft, target_probs, acceptance, recovery)


# By the names of the literature: some rules have one name on a chain and another on a tree.
RULES: dict[str, Rule] = {
    "auto": verify,
    "token": recursive_rejection,
    "recursive": recursive_rejection,
    "block": traversal,
    "traversal": traversal,
    "matching": matching,
    "coupled": matching,
}


def find_rule(name: str) -> Rule:
    """The rule of that name; raises OptionError, which lists the names there are."""
    if name not in RULES:
        raise OptionError(f"verification is {name!r}; give one of {', '.join(RULES)}.")
    return RULES[name]
