"""The same number of draft tokens at every step: the paper's constant γ."""

from collections.abc import Sequence as Rows

from draftwise.checks import whole_number
from draftwise.control.base import UpTo
from draftwise.errors import OptionError
from draftwise.sequence import Sequence
from draftwise.types import Step


class Fixed:
    """Always allow `num_draft_tokens` tokens; 0 is plain decoding."""

    def __init__(self, num_draft_tokens: int) -> None:
        if whole_number("num_draft_tokens", num_draft_tokens) < 0:
            raise OptionError(f"num_draft_tokens is {num_draft_tokens}; give 0 (no drafting) or more.")
        self.num_draft_tokens = num_draft_tokens

    def begin(self, row: int, sequence: Sequence) -> None:
        """Nothing to forget."""

    def limits(self, rows: Rows[Sequence]) -> list[UpTo]:
        return [UpTo(min(self.num_draft_tokens, row.room)) for row in rows]

    def observe(self, step: Step) -> None:
        """A constant learns nothing."""
