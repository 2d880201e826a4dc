"""The protocols of what decides how far to draft."""

from collections.abc import Sequence as Rows
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from draftwise.sequence import Sequence
from draftwise.types import Step


class Limit(Protocol):
    """How far the draft of one row may go in one step; a drafter asks it before each token, never after.

    A confidence is how likely the drafter takes its next token to be accepted, a number from 0 to 1 known
    before the token is drawn. Its scale is the drafter's own: whoever decides with it calibrates it.
    """

    def choose(self, confidences: Rows[float | None]) -> int | None:
        """Which of several drafters is to draft, None for none of them.

        `confidences`: what each knows for free of its first token: 0 if it has none to offer, None if it
        would have to work to know.
        """
        ...

    def allows(self, num_drafted: int, confidence: float | None = None, parent: int | None = None) -> bool:
        """Whether to draft one more token after `num_drafted`.

        `parent`: in a tree, the index of the token that it is to follow, -1 being the text; None is a chain,
        where it follows the last. Its confidence is that of being accepted where its parent is. A drafter
        that works for its confidence asks twice: without it before the work, and with it before the token is
        drawn. A tree of tokens that are not drawn may be asked for anew, from its first token on.
        """
        ...


@dataclass(frozen=True, slots=True)
class UpTo:
    """Allows a number of tokens, from the first drafter that has a guess."""

    num_draft_tokens: int

    def choose(self, confidences: Rows[float | None]) -> int | None:
        return next((index for index, confidence in enumerate(confidences) if confidence != 0), None)

    def allows(self, num_drafted: int, confidence: float | None = None, parent: int | None = None) -> bool:
        return num_drafted < self.num_draft_tokens


@runtime_checkable
class Controller(Protocol):
    """Decides before each step how far to draft, and learns from what became of it."""

    def begin(self, row: int, sequence: Sequence) -> None:
        """Decide for this sequence in this row, and forget what was of the one before alone."""
        ...

    def limits(self, rows: Rows[Sequence]) -> Rows[Limit]:
        """The limit of each row's draft, at most its `room`."""
        ...

    def observe(self, step: Step) -> None:
        """Learn from a finished step."""
        ...
