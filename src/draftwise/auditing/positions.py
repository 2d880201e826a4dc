"""The distributions of a speculative pass, position by position, against those of plain passes."""

from dataclasses import dataclass

import numpy as np

from draftwise.auditing.plain import PlainReader, largest_difference
from draftwise.sampling import Distributions, Sampler
from draftwise.types import Draft, Logits, Step


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
