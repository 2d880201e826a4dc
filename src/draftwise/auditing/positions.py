"""The distributions of a speculative pass, position by position, against those of plain passes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from draftwise.auditing.plain import PlainReader, largest_difference
from draftwise.control.base import Limit
from draftwise.drafters.base import Drafter, DraftState
from draftwise.models.base import LanguageModel, Tap
from draftwise.randomness import Randomness
from draftwise.sampling import Distributions, Sampler
from draftwise.types import Draft, Logits, Source, Step


@dataclass(frozen=True, slots=True)
class Positions:
    """How far speculative and plain passes are apart at most, over so many positions of drafts."""

    count: int = 0
    logits: float = 0.0
    probs: float = 0.0
    total_variation: float = 0.0

    def __or__(self, other: "Positions") -> "Positions":
        return Positions(
            self.count + other.count,
            max(self.logits, other.logits),
            max(self.probs, other.probs),
            max(self.total_variation, other.total_variation),
        )


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


class PositionAudit:
    """Compares the steps of one sequence as they come."""

    def __init__(self, reader: PlainReader, sampler: Sampler) -> None:
        """`sampler`: of the sequence at its start."""
        self._reader = reader
        self._sampler = sampler
        self._output: list[int] = []
        self.found = Positions()

    def step(self, step: Step, logits: Logits) -> None:
        """`logits`: of the speculative pass, after the text and each drafted token."""
        draft = Draft(step.drafted, None, step.parents)
        probs = Distributions(logits, self._sampler, draft)
        for index, speculative in enumerate(logits):
            text = [*self._output, *draft.path_to(index - 1)]
            expected = self._reader.probs(text)
            self.found |= Positions(
                1,
                largest_difference(speculative, self._reader.logits(text)),
                largest_difference(probs[index], expected),
                float(np.abs(probs[index] - expected).sum()) / 2,
            )
        self._output += step.emitted
        self._sampler = self._sampler.after(step.emitted)
