"""What the states of all heads have in common: they read hidden states of the text, once each."""

from collections.abc import Sequence

from draftwise.control.base import Limit
from draftwise.drafters.heads.features import Features
from draftwise.models.base import Tap
from draftwise.types import Source, Step


class HeadState:
    """Hidden states of the accepted tokens of each row; a draft is made where new ones are there."""

    def __init__(self, reads: tuple[int, ...], num_sequences: int) -> None:
        self._features = Features(reads, num_sequences)
        self.taps: Sequence[Tap] = [self._features.tap]

    def begin(self, row: int, source: Source | None) -> None:
        self._features.begin(row)

    def confidence(self, row: int, context: Sequence[int]) -> float | None:
        return None if self._is_ready(row, context) else 0.0

    def observe(self, step: Step) -> None:
        self._features.observe(step)

    def _is_ready(self, row: int, context: Sequence[int]) -> bool:
        return self._features.are_there(row, context)

    def _asked(self, contexts: Sequence[Sequence[int]], limits: Sequence[Limit]) -> list[int]:
        """The rows for which a draft can be made, and is wanted."""
        return [
            row
            for row, context in enumerate(contexts)
            if self._is_ready(row, context) and limits[row].allows(0)
        ]
