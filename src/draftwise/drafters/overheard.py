"""What the target says in each step, kept for whoever else wants it."""

from collections.abc import Sequence

import numpy as np

from draftwise.control.base import Limit
from draftwise.drafters.base import Drafter, DraftState
from draftwise.models.base import LanguageModel, Tap
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler
from draftwise.types import Draft, Logits, Source, Step


class Overheard:
    """A drafter that passes everything on to another and keeps what the target said in the last step."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.name = drafter.name
        self.default_num_draft_tokens = drafter.default_num_draft_tokens
        self.logits: Logits = np.empty((0, 0))

    def open(self, target: LanguageModel, num_sequences: int, max_length: int) -> "OverheardState":
        return OverheardState(self, self.drafter.open(target, num_sequences, max_length))


class OverheardState:
    """The other drafter's state, overheard."""

    def __init__(self, drafter: Overheard, state: DraftState) -> None:
        self._drafter = drafter
        self._state = state

    @property
    def taps(self) -> Sequence[Tap]:
        return self._state.taps

    def begin(self, row: int, source: Source | None) -> None:
        self._state.begin(row, source)

    def confidence(self, row: int, context: Sequence[int]) -> float | None:
        return self._state.confidence(row, context)

    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[Limit],
        samplers: Sequence[Sampler],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        return self._state.propose(contexts, limits, samplers, randomness)

    def observe(self, step: Step) -> None:
        assert step.logits is not None
        self._drafter.logits = step.logits.copy()
        self._state.observe(step)

    def close(self) -> None:
        self._state.close()
