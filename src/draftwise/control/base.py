"""The protocol of what decides how far to draft."""

from collections.abc import Sequence as Rows
from typing import Protocol

from draftwise.sequence import Sequence
from draftwise.types import Step


class Controller(Protocol):
    """Decides before each step how many tokens may be drafted, and learns from what became of them."""

    def limits(self, rows: Rows[Sequence]) -> list[int]:
        """The most tokens to draft for each row; 0 is plain decoding."""
        ...

    def observe(self, step: Step) -> None:
        """Learn from a finished step."""
        ...
