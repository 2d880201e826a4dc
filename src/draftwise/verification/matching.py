"""The target draws its own tokens, and a guess is kept where it is the one drawn."""

from collections.abc import Sequence

from draftwise.randomness import Randomness
from draftwise.types import Draft, Probs, Verdict


def matching(
    draft: Draft, target_probs: Sequence[Probs], acceptance: Randomness, recovery: Randomness
) -> Verdict:
    """Draw from p; where the token is among the guesses go on below it, else end with it.

    What is emitted is always the target's own draw, so the rule is exact for any draft that was made without
    `recovery`'s noise, and the best one for deterministic guesses, chain or tree (equal in law to testing
    each with probability p, as EAGLE-2 does, 2406.16858). Where the noise of each position is a function of
    the position, the draft may share it: then the output is that of plain decoding with the same noise, and
    guesses match more often (coupled sampling, 2408.07978). `target_probs`: as for `verify`; those after the
    first draw that was not guessed are not looked at.
    """
    children = draft.children()
    path: list[int] = []
    while True:
        node = path[-1] if path else -1
        token_id = recovery.sample(target_probs[node + 1])
        guessed = (child for child in children[node + 1] if draft.token_ids[child] == token_id)
        child = next(guessed, None)
        if child is None:
            return Verdict(tuple(path), token_id)
        path.append(child)
