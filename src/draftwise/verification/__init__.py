"""Acceptance rules: how much of a draft is kept, so that the output has the target's distribution.

All in `RULES` are exact; "lenient" and "typical" are not, and have to be asked for by name.
"""

from collections.abc import Callable, Sequence
from functools import partial

from draftwise.checks import number
from draftwise.errors import OptionError
from draftwise.randomness import Randomness
from draftwise.types import Draft, Probs, Verdict
from draftwise.verification.matching import matching
from draftwise.verification.rejection import recursive_rejection
from draftwise.verification.residual import acceptance_probability, residual
from draftwise.verification.traversal import traversal
from draftwise.verification.typical import typical

__all__ = [
    "LENIENT",
    "RULES",
    "TYPICAL",
    "Rule",
    "acceptance_probability",
    "find_rule",
    "matching",
    "recursive_rejection",
    "residual",
    "traversal",
    "typical",
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


LENIENT, TYPICAL = "lenient", "typical"  # not among them: they are not exact


def find_rule(name: str, lenience: float = 1.0) -> Rule:
    """The rule of that name; raises OptionError, which lists the names there are.

    "lenient" is token-wise verification with a `lenience` above 0 and up to 1, where 1 is exact; every other
    rule refuses one below 1. "typical" is Medusa's acceptance, lossy too.
    """
    if name not in (names := (*RULES, LENIENT, TYPICAL)):
        raise OptionError(f"verification is {name!r}; give one of {', '.join(names)}.")
    lenience = number("lenience", lenience)
    if name == LENIENT:
        if not 0 < lenience <= 1:
            raise OptionError(f"lenience is {lenience}; give a number above 0 and up to 1, where 1 is exact.")
        return partial(recursive_rejection, lenience=lenience)
    if lenience != 1:
        raise OptionError(
            f"lenience is {lenience}, which changes the distribution of the output; ask for that by name, "
            f'with verification "{LENIENT}", or leave it at 1.'
        )
    return typical if name == TYPICAL else RULES[name]
