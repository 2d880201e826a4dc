"""How far to copy after a match: as far as the limit allows, or by a table of the caller's."""

from bisect import bisect
from collections.abc import Sequence
from operator import index

from draftwise.errors import OptionError

DRAFT_LENGTHS = ((1, 32),)  # (tokens matched, tokens drafted): the limit alone decides
FIXED = 8  # tokens drafted where a fixed number is asked for and none is given


class DraftLengths:
    """A rising staircase from the length of a match to that of a draft.

    `pairs`: (match length from which the pair holds, tokens drafted), in increasing order of match length; a
    match shorter than the first draws no draft. Raises OptionError for pairs that are not so.
    """

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        try:
            numbers = [(index(matched), index(drafted)) for matched, drafted in pairs]
        except (TypeError, ValueError):  # they are no pairs, or not of whole numbers
            numbers = []
        self._matches, lengths = [matched for matched, _ in numbers], [drafted for _, drafted in numbers]
        valid = numbers and self._matches[0] >= 1 and min(lengths) >= 1
        if not valid or sorted(set(self._matches)) != self._matches:
            raise OptionError(
                f"draft_lengths is {pairs!r}; give pairs (match length, draft length) of whole numbers "
                "from 1 up, by increasing match length."
            )
        self.most = max(lengths)
        self.default = min(FIXED, self.most)
        self._lengths = [0, *lengths]

    def after(self, match_length: int) -> int:
        """How many tokens to draft after a match of `match_length` tokens."""
        return self._lengths[bisect(self._matches, match_length)]


def match_confidence(match_length: int, num_alike: int = 1, num_other: int = 0) -> float:
    """How likely a copy is right after a match of m tokens: odds of m / 2.5 * a / (o + 1).

    Of the earlier occurrences of what matches, a (`num_alike`) went on as the copy does and o otherwise.
    Single tokens of real texts go on rather by m^1.25; but a draft stakes on all of its tokens at once, and
    texts differ in how far they copy.
    """
    odds = match_length / 2.5 * num_alike / (num_other + 1)
    return odds / (1 + odds)
