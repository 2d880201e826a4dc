"""What a drafter and γ would bring: passes, tokens, seconds, from traces and measured costs."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from draftwise.planning.curves import Curves, at_context, interpolated
from draftwise.planning.measure import Trace
from draftwise.planning.text import Text


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of the parts of a step, by context length.

    `verify`: by width of the pass. `draft`: by tokens drafted, None for plain decoding. `other`: seconds of
    verification, text and bookkeeping, by tokens emitted.
    """

    verify: Curves
    draft: Curves | None
    other: dict[int, float]

    def along(self, text: Text, max_draft_tokens: int) -> "StepSeconds":
        """The costs at each position of a text."""
        verify, draft = [], []
        for context in range(len(text.prompt_ids), len(text.prompt_ids) + len(text)):
            by_width = at_context(self.verify, context)
            by_length = at_context(self.draft, context) if self.draft else {1: 0.0}
            verify.append([interpolated(by_width, n + 1) for n in range(max_draft_tokens + 1)])
            draft.append([interpolated(by_length, max(1, n)) for n in range(max_draft_tokens + 1)])
        other = [interpolated(self.other, n + 1) for n in range(max_draft_tokens + 1)]
        return StepSeconds(np.array(verify), np.array(draft), np.array(other))


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """Seconds of a step at each of the N positions of a text.

    `verify`, `draft`: `[N, Γ + 1]`, by the tokens drafted: 0, 1, ..., Γ. A drafter that is asked and drafts
    nothing is taken to cost what one token does. `other`: `[Γ + 1]`, by the tokens emitted: 1, ..., Γ + 1.
    """

    verify: NDArray[np.float64]
    draft: NDArray[np.float64]
    other: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Prediction:
    """Expected totals of decoding some texts, after the pass that reads each prompt."""

    tokens: float = 0.0
    passes: float = 0.0
    drafted: float = 0.0
    seconds: float = 0.0

    def __add__(self, more: "Prediction") -> "Prediction":
        return Prediction(
            *(getattr(self, part.name) + getattr(more, part.name) for part in fields(Prediction))
        )

    @property
    def tokens_per_pass(self) -> float:
        """The mean acceptance length τ; 1 where the first pass wrote everything."""
        return self.tokens / self.passes if self.passes else 1.0

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    def speedup(self, plain: "Prediction") -> float:
        """Tokens a second over those of plain decoding; 1 where there was nothing to decode."""
        if not self.seconds or not plain.seconds:
            return 1.0
        return self.tokens_per_second / plain.tokens_per_second

    def operations(self, operations_cost: float) -> float:
        """Operations for each token over those of plain decoding; `operations_cost` is ĉ (Theorem 3.11)."""
        return (self.passes + self.drafted * (1 + operations_cost)) / self.tokens if self.tokens else 1.0

    def memory_accesses(self, memory_cost: float) -> float:
        """Weights read for each token over those of plain decoding; `memory_cost`: the drafter's share."""
        return (self.passes + self.drafted * memory_cost) / self.tokens if self.tokens else 1.0


def predict(trace: Trace, num_draft_tokens: int, seconds: StepSeconds) -> Prediction:
    """Expected totals over one text; exact for its passes, given the text.

    `seconds`: `Costs.along` the text, up to the Γ of the trace; all γ share it. A γ of 0 is plain decoding.
    """
    size = len(trace.text)
    limits = np.minimum(num_draft_tokens, trace.text.max_new_tokens - 1 - np.arange(size))
    drafted = np.minimum(limits, trace.lengths)
    emitting = emissions(trace.survival, drafted)
    begun = visits(emitting)
    begun[0] = 0.0  # the pass that reads the prompt is counted apart
    counts = np.arange(1, emitting.shape[1] + 1)
    left = size - np.arange(size)  # an end inside a draft cuts it
    emitted = (emitting * np.minimum(counts, left[:, None])).sum(axis=1)
    at = np.arange(size)
    asked = np.where(limits > 0, seconds.draft[at, drafted], 0.0)
    step = seconds.verify[at, drafted] + asked + emitting @ seconds.other
    return Prediction(
        tokens=float(begun @ emitted),
        passes=float(begun.sum()),
        drafted=float(begun @ drafted),
        seconds=float(begun @ step),
    )


def as_written(text: Text, costs: Costs) -> Prediction:
    """Totals of the very steps that wrote a text, drafting as it then was and the rest by its costs.

    Only a run shows how far a controller drafts; so what it decided is taken as it was, and what that takes
    is reckoned as for any other choice: its drafting too, had its passes then taken what they cost.
    """
    held = len(text.prompt_ids)
    total, verify, draft, taken = Prediction(), 0.0, 0.0, 0.0
    for before, step in pairwise(text.steps):
        held += len(before.emitted)
        emitted, drafted = len(step.emitted), len(step.drafted)
        verify += interpolated(at_context(costs.verify, held), drafted + 1)
        draft, taken = draft + step.seconds.draft, taken + step.seconds.verify
        total += Prediction(emitted, 1, drafted, interpolated(costs.other, emitted))
    pace = verify / taken if taken else 1.0  # of the machine when it was timed, over that of the text
    return total + Prediction(seconds=verify + draft * pace)


def emissions(survival: NDArray[np.float64], drafted: NDArray[np.int64]) -> NDArray[np.float64]:
    """Probability `[N, Γ + 1]` that a step at each position emits 1, 2, ..., Γ + 1 tokens.

    `survival`: as in Trace; `drafted`: `[N]`, how many tokens the step drafts.
    """
    positions = np.arange(survival.shape[1] + 1)
    going_on = np.hstack([survival, np.zeros((len(survival), 1))])
    going_on[positions > drafted[:, None]] = 0.0
    return going_on[:, :-1] - going_on[:, 1:]


def visits(emitting: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probability `[N]` that a step begins at each position, given what each would emit."""
    size, most = emitting.shape
    begun = np.zeros(size + most)
    begun[0] = 1.0
    for at in range(size):
        begun[at + 1 : at + 1 + most] += begun[at] * emitting[at]
    return begun[:size]


def overhead(texts: Iterable[Text]) -> dict[int, float]:
    """Median seconds of a step beside drafting and the pass, by tokens emitted, as texts were written."""
    by_count: dict[int, list[float]] = {}
    for text in texts:
        for step in text.steps[1:]:
            by_count.setdefault(len(step.emitted), []).append(step.seconds.other)
    return {count: float(np.median(seconds)) for count, seconds in by_count.items()} or {1: 0.0}
