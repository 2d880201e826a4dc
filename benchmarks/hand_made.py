"""Rules made by hand, which adaptive drafting is to beat: the longer the match, the longer its copy."""

from collections.abc import Sequence as Rows
from dataclasses import dataclass
from typing import Literal

from draftwise.control.base import Controller, Limit, UpTo
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.models.base import LanguageModel
from draftwise.sequence import Sequence
from draftwise.types import Step

# By the length of the match, as the best of hand-made rules have it.
STAIRCASE = ((1, 1), (2, 3), (4, 5), (6, 7), (10, 11))
LONGEST = STAIRCASE[-1][1]
SURE = 6  # a match as long as that is copied; without one a draft model drafts
Number = int | Literal["auto"] | Controller
Way = tuple[list[Drafter], Number]


def by_match_length() -> Way:
    """Prompt lookup alone."""
    return [PromptLookup(STAIRCASE)], LONGEST


def or_three_of(draft_model: LanguageModel) -> Way:
    """Prompt lookup where it is sure, and else three tokens of a draft model."""
    sure = [(length, number) for length, number in STAIRCASE if length >= SURE]
    return [PromptLookup(sure), DraftModel(draft_model)], Each((LONGEST, 3))


@dataclass(frozen=True)
class Each:
    """The first drafter with a guess, as far as its own number."""

    numbers: tuple[int, ...]

    def begin(self, row: int, sequence: Sequence) -> None:
        """Every text is alike."""

    def limits(self, rows: Rows[Sequence]) -> list[Limit]:
        return [OfEach([min(number, row.room) for number in self.numbers]) for row in rows]

    def observe(self, step: Step) -> None:
        """Nothing to learn."""


@dataclass
class OfEach:
    """As far as the number of the drafter that was chosen."""

    numbers: list[int]
    limit: UpTo | None = None

    def choose(self, confidences: Rows[float | None]) -> int | None:
        chosen = UpTo(1).choose(confidences)
        self.limit = UpTo(0 if chosen is None else self.numbers[chosen])
        return chosen

    def allows(self, num_drafted: int, confidence: float | None = None, parent: int | None = None) -> bool:
        return (self.limit or UpTo(max(self.numbers))).allows(num_drafted, confidence, parent)
