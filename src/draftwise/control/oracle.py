"""What drafting would have cost, had each draft been as long as it was right."""

from collections.abc import Iterable
from collections.abc import Sequence as Rows

from draftwise.types import Step


def oracle_seconds(steps: Iterable[Step], verify: Rows[float]) -> float:
    """Seconds of recorded steps, less what went to draft tokens that were not accepted.

    `verify`: T(n), seconds of a pass over n positions, at index n; as far as the longest draft and one more.
    The oracle of 2211.17192 (section 3.5) knows how many tokens will be accepted and drafts just those: no
    choice of lengths does better with the same guesses. Drafting costs each token alike. The draft of a tree,
    whose paths the oracle knows too, is the accepted path.
    """
    return sum(
        step.seconds.total
        - step.seconds.draft * (1 - step.num_accepted / len(step.drafted))
        - (verify[len(step.drafted) + 1] - verify[step.num_accepted + 1])
        if step.drafted
        else step.seconds.total
        for step in steps
    )
