"""How far to copy after a match: the longer it is, the likelier the copy goes on."""

from bisect import bisect
from collections.abc import Sequence

from draftwise.errors import OptionError

# (tokens matched, tokens drafted)
DRAFT_LENGTHS = ((1, 1), (2, 3), (4, 5), (6, 7), (10, 11))


class DraftLengths:
    """A rising staircase from the length of a match to that of a draft.

    `pairs`: (match length from which the pair holds, tokens drafted), in increasing order of match length; a
    match shorter than the first draws no draft. Raises OptionError for pairs that are not so.
    """

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._matches = [matched for matched, _ in pairs]
        lengths = [drafted for _, drafted in pairs]
        valid = pairs and self._matches[0] >= 1 and min(lengths) >= 1
        if not valid or sorted(set(self._matches)) != self._matches:
            raise OptionError(
                f"draft_lengths is {pairs}; give pairs (match length, draft length) of whole numbers "
                "from 1 up, by increasing match length."
            )
        self.most = max(lengths)
        self._lengths = [0, *lengths]

    def after(self, match_length: int) -> int:
        """How many tokens to draft after a match of `match_length` tokens."""
        return self._lengths[bisect(self._matches, match_length)]


def match_confidence(match_length: int) -> float:
    """One to `match_length` are the odds that the copy goes on: the longer the match, the likelier."""
    return match_length / (match_length + 1)
