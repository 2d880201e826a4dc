"""What a target's pass and a drafter's guess cost here: interleaved, repeated, medians with their spread."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from draftwise.control.base import UpTo
from draftwise.drafters.base import Drafter, DraftState
from draftwise.models.base import LanguageModel, ModelState
from draftwise.progress import Progress
from draftwise.randomness import Streams
from draftwise.sampling import SamplingParams

Clock = Callable[[], float]
Key = TypeVar("Key", bound=Hashable)

CONTEXTS = (64, 512)
# Kernels work in tiles, so the curve has steps: no width that a draft commonly leads to is left out.
WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 16, 17)
DRAFT_LENGTHS = (1, 2, 4, 8)
MIN_ROUNDS, MAX_ROUNDS = 3, 15


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one thing done several times: the median and the quartiles."""

    median: float
    lower_quartile: float
    upper_quartile: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Timing":
        lower, median, upper = (float(value) for value in np.quantile(seconds, (0.25, 0.5, 0.75)))
        return cls(median, lower, upper)

    @property
    def spread(self) -> float:
        """The distance of the quartiles over the median: 0 where every round took the same time."""
        return (self.upper_quartile - self.lower_quartile) / self.median if self.median else 0.0


# Seconds by context length (tokens held before), and then by width of the pass or by tokens drafted.
Curves = Mapping[int, Mapping[int, Timing]]


def pass_times(model: LanguageModel, *, budget: float, clock: Clock, progress: Progress) -> Curves:
    """T(n): seconds of one pass of a target over n positions, at several context lengths.

    A width of 1 is a lone token as the target runs it, which some engines pad. `budget`: seconds to spend on
    rounds; there are at least 3 of them.
    """
    widths = [width for width in WIDTHS if 2 * width <= model.max_length]
    contexts = _fitting(CONTEXTS, model.max_length - widths[-1])
    token_ids = _any_text(model, contexts[-1] + widths[-1])
    with closing(model.open(len(contexts), len(token_ids))) as state:
        rows = dict(enumerate(contexts))
        for row, context in rows.items():
            _feed(state, row, token_ids[:context])
            progress(f"timing {model.name}", 0.0)

        def run(row: int, width: int) -> None:
            state.keep(row, rows[row])
            _feed(state, row, token_ids[rows[row] : rows[row] + width])

        runs = {(rows[row], width): partial(run, row, width) for row in rows for width in widths}
        return _curves(interleaved(runs, budget, clock, partial(progress, f"timing {model.name}")))


def draft_times(
    drafter: Drafter,
    target: LanguageModel,
    *,
    budget: float,
    clock: Clock,
    progress: Progress,
    sampling: SamplingParams | None = None,
) -> Curves:
    """Seconds that a drafter takes to guess n tokens, at several context lengths; `sampling`: None is greedy.

    Before each guess the context has grown by one token, so a draft model runs n passes.
    """
    lengths = DRAFT_LENGTHS
    room = (MAX_ROUNDS + 2) * len(lengths) + max(lengths)  # what the contexts grow by, at most
    contexts = _fitting(CONTEXTS, target.max_length - room)
    text = _any_text(target, contexts[-1] + room)
    with closing(drafter.open(target, len(contexts), len(text))) as state:
        grown = [text[:context] for context in contexts]

        def run(row: int, length: int) -> None:
            grown[row].append(text[len(grown[row])])
            propose(state, grown, row, length, sampling or SamplingParams())

        runs = {
            (context, length): partial(run, row, length)
            for row, context in enumerate(contexts)
            for length in lengths
        }
        return _curves(interleaved(runs, budget, clock, partial(progress, f"timing {drafter.name}")))


def propose(
    state: DraftState, contexts: Sequence[Sequence[int]], row: int, length: int, sampling: SamplingParams
) -> None:
    """Have one row of a drafter guess; the others draft nothing."""
    limits = [UpTo(length if index == row else 0) for index in range(len(contexts))]
    randomness = [Streams.seeded(0).drafting] * len(contexts)
    state.propose(contexts, limits, [sampling] * len(contexts), randomness)


def interleaved(
    runs: Mapping[Key, Callable[[], object]],
    budget: float,
    clock: Clock,
    progress: Callable[[float], None] = lambda fraction: None,
) -> dict[Key, Timing]:
    """Time each of `runs` once in every round, so that a slow moment of the machine falls on all of them.

    Rounds go on until `budget` seconds are over, from 3 to 15 of them, after one that is not counted.
    """
    seconds: dict[Key, list[float]] = {key: [] for key in runs}
    for run in runs.values():
        run()
    began = clock()
    for done in range(1, MAX_ROUNDS + 1):
        for key, run in runs.items():
            start = clock()
            run()
            seconds[key].append(clock() - start)
        spent = clock() - began
        progress(min(1.0, max(done / MAX_ROUNDS, spent / budget if budget else 0.0)))
        if done >= MIN_ROUNDS and spent >= budget:
            break
    progress(1.0)
    return {key: Timing.of(times) for key, times in seconds.items()}


def _curves(timings: Mapping[tuple[int, int], Timing]) -> Curves:
    curves: dict[int, dict[int, Timing]] = {}
    for (context, size), timing in timings.items():
        curves.setdefault(context, {})[size] = timing
    return curves


def _fitting(contexts: Sequence[int], longest: int) -> list[int]:
    """The context lengths, none of them beyond `longest`, increasing."""
    return sorted({max(1, min(context, longest)) for context in contexts})


def _feed(state: ModelState, row: int, token_ids: Sequence[int]) -> None:
    """One pass of one row, all of whose positions are scored."""
    rows = range(len(state.lengths))
    state.forward(
        [token_ids if index == row else [] for index in rows],
        [min(len(token_ids), WIDTHS[-1]) if index == row else 0 for index in rows],
    )


def _any_text(model: LanguageModel, length: int) -> list[int]:
    """Tokens from all over the vocabulary: the time of a pass does not depend on which."""
    return [7919 * (position + 1) % min(model.vocab_size, 20000) for position in range(length)]
