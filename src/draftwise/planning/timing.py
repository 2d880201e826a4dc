"""What a target's pass and a drafter's guess cost here, timed in the loop itself, in turns.

A pass in a tight loop of passes is faster than the same pass in real decoding, where threads have gone to
sleep and caches hold other things by the time it begins. So real steps are timed.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from itertools import count, takewhile
from statistics import median
from typing import TypeVar

from draftwise.control.base import Limit
from draftwise.control.fixed import Fixed
from draftwise.drafters.base import Drafter
from draftwise.loop import begin, step
from draftwise.models.base import LanguageModel, Tap, example_of
from draftwise.planning.curves import Curves, DraftTimes, Timing, at_context, interpolated
from draftwise.progress import Progress
from draftwise.randomness import Randomness, Streams
from draftwise.sampling import Sampler, SamplingParams
from draftwise.sequence import Sequence as Row
from draftwise.sequence import StopConditions
from draftwise.types import Draft, Seconds, Source, Step

Clock = Callable[[], float]
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

CONTEXTS = (64, 512)
# Kernels work in tiles, so the curve has steps: no width that a draft commonly leads to is left out.
WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 16, 17)
WIDER = (24, 32, 40, 48, 64, 80, 96, 128)  # what the drafts of several rows come to
DRAFT_LENGTHS = (1, 2, 4, 8)
MIN_ROUNDS, MAX_ROUNDS = 5, 15


@dataclass(frozen=True, slots=True)
class TimedStep:
    """What a step took whose pass had `width` positions, after a context of so many tokens."""

    context_length: int
    width: int
    seconds: Seconds


def pass_times(
    target: LanguageModel,
    widths: Sequence[int] = WIDTHS,
    *,
    budget: float,
    clock: Clock,
    progress: Progress,
) -> Curves:
    """T(n): seconds of one pass of a target over n positions, at several context lengths.

    `widths`: these n, as far as the target has room. Widths that the target pads to one take the same time.
    `budget`: seconds to spend on rounds; there are at least 5 of them.
    """
    lengths = [width - 1 for width in widths if 4 * width <= target.max_length] or [0]
    times = step_times(target, _Anything(), lengths, budget=budget, clock=clock, progress=progress)
    shortest = getattr(target, "shortest_pass", 1)  # an engine that pads says to what
    alike: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    for (context, n), (_, *of) in times.items():
        alike[context, max(n + 1, shortest)] += [each.seconds.verify for each in of]
    return _curves({(context, n + 1): alike[context, max(n + 1, shortest)] for context, n in times})


def draft_times(
    drafter: Drafter,
    target: LanguageModel,
    verify: Curves,
    *,
    budget: float,
    clock: Clock,
    progress: Progress,
    sampling: SamplingParams | None = None,
) -> DraftTimes:
    """Seconds that a drafter takes to guess n tokens, at several context lengths; `sampling` None is greedy.

    `verify`: T(n), as the machine was when that was timed. It may be slower by now, or quicker, and what a
    draft costs beside a pass is what decides: so drafts are given as if their own steps' passes had taken
    that.
    """
    lengths = [length for length in DRAFT_LENGTHS if 8 * length <= target.max_length] or [1]
    times = step_times(
        target, drafter, lengths, budget=budget, clock=clock, progress=progress, sampling=sampling
    )
    rounds = {key: of for key, (_, *of) in times.items()}
    pace = _pace(verify, rounds.values())
    curves = _curves({key: [pace * each.seconds.draft for each in of] for key, of in rounds.items()})
    # The first draft after a context reads it.
    context, length = max(curves), min(lengths)
    first = times[context, length][0]
    reading = pace * first.seconds.draft - curves[context][length].lower_quartile
    return DraftTimes(curves, max(0.0, reading / first.context_length))


def step_times(
    target: LanguageModel,
    drafter: Drafter,
    lengths: Sequence[int],
    *,
    budget: float,
    clock: Clock,
    progress: Progress,
    sampling: SamplingParams | None = None,
) -> dict[tuple[int, int], list[TimedStep]]:
    """Steps that draft up to n tokens, by context length and n: those of `interleaved`.

    A drafter goes on with what the target answers, so that its drafts are accepted as they will be; the
    contexts grow by that.
    """
    rewinds = isinstance(drafter, _Anything)
    name = f"timing {target.name if rewinds else drafter.name}"
    most = max(lengths) + 2 if rewinds else (MAX_ROUNDS + 1) * sum(length + 1 for length in lengths)
    room = min(most, target.max_length // 2)
    contexts = sorted({max(2, min(context, target.max_length - room)) for context in CONTEXTS})
    sampling = sampling or SamplingParams()
    runs: dict[tuple[int, int], Callable[[], TimedStep]] = {}
    with ExitStack() as opened:
        for context in contexts:
            progress(name, 0.0)
            loop = opened.enter_context(closing(_Loop(target, drafter, context, room, sampling, rewinds)))
            runs |= {(context, length): partial(loop.run, length) for length in lengths}
        return interleaved(runs, budget, clock, partial(progress, name))


class _Loop:
    """One row that has read a context, and decodes from there, step by step; at its end it begins anew.

    `rewinds`: every step is the one after the context, which suits a drafter that remembers nothing.
    """

    def __init__(
        self,
        target: LanguageModel,
        drafter: Drafter,
        context: int,
        room: int,
        sampling: SamplingParams,
        rewinds: bool,
    ) -> None:
        # Tokens from all over the vocabulary: the time of a pass does not depend on which.
        vocab_size = min(target.vocab_size, 20000)
        self._prompt = [7919 * (position + 1) % vocab_size for position in range(context)]
        self._target = target
        self._drafter = drafter
        self._room = room
        self._sampling = sampling
        self._rewinds = rewinds
        self._opened = ExitStack()
        self._begin()

    def _begin(self) -> None:
        self._opened.close()
        length = len(self._prompt) + self._room
        self._drafting = self._opened.enter_context(closing(self._drafter.open(self._target, 1, length)))
        cache = self._target.open(1, length, taps=self._drafting.taps)
        self._cache = self._opened.enter_context(closing(cache))
        self._rewind()
        begin(self._cache, self._drafting, [0], self._row)
        if self._rewinds:  # in a pass of its own, after which a recurrent state can be had again
            self._cache.forward([self._prompt[:-1]], [0])
        step(self._cache, self._drafting, Fixed(0), [self._row])

    def _rewind(self) -> None:
        stop = StopConditions(self._room)
        tokenizer = self._target.tokenizer
        sampler = Sampler.start(self._sampling, self._prompt, self._target)
        streams, source = Streams.seeded(0), example_of(self._target)
        self._row = Row(self._prompt, stop, sampler, streams, tokenizer, source=source)
        self._cache.keep(0, min(self._cache.lengths[0], len(self._prompt) - 1))

    def run(self, num_draft_tokens: int) -> TimedStep:
        """A step that drafts up to so many tokens."""
        if self._rewinds:
            self._rewind()
        elif self._row.room < num_draft_tokens:
            self._begin()
        context_length = len(self._row.token_ids)
        (taken,) = step(self._cache, self._drafting, Fixed(num_draft_tokens), [self._row])
        return TimedStep(context_length, taken.num_fed, taken.seconds)

    def close(self) -> None:
        self._opened.close()


class _Anything:
    """Drafts as far as it may, for the sake of the pass that follows."""

    name = "anything"
    default_num_draft_tokens = WIDTHS[-1] - 1
    taps: Sequence[Tap] = ()

    def open(self, target: LanguageModel, num_sequences: int, max_length: int) -> "_Anything":
        return self

    def begin(self, row: int, source: Source | None) -> None:
        """Nothing to forget."""

    def confidence(self, row: int, context: Sequence[int]) -> None:
        """It takes no interest in what it drafts."""

    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[Limit],
        samplers: Sequence[Sampler],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        lengths = [sum(1 for _ in takewhile(limit.allows, count())) for limit in limits]
        return [
            Draft(tuple(context[(7 * n) % len(context)] for n in range(length)))
            for context, length in zip(contexts, lengths, strict=True)
        ]

    def observe(self, step: Step) -> None:
        """Nothing to learn."""

    def close(self) -> None:
        """Nothing to release."""


def interleaved(
    runs: Mapping[Key, Callable[[], Value]],
    budget: float,
    clock: Clock,
    progress: Callable[[float], None] = lambda fraction: None,
) -> dict[Key, list[Value]]:
    """What each of `runs` returns, once in every round: a slow moment of the machine falls on all of them.

    Rounds go on until `budget` seconds are over, from 5 to 15 of them, after one in which things are done
    that are done only once; what it returns comes first.
    """
    returned = {key: [run()] for key, run in runs.items()}
    began = clock()
    for done in range(1, MAX_ROUNDS + 1):
        for key, run in runs.items():
            returned[key].append(run())
        spent = clock() - began
        progress(min(1.0, max(done / MAX_ROUNDS, spent / budget if budget else 0.0)))
        if done >= MIN_ROUNDS and spent >= budget:
            break
    progress(1.0)
    return returned


def _pace(verify: Curves, times: Iterable[Sequence[TimedStep]]) -> float:
    """What passes take by `verify` over what they took in these steps; 1 where they took nothing."""
    ratios = []
    for steps in times:
        expected = (interpolated(at_context(verify, each.context_length), each.width) for each in steps)
        taken = [
            each.seconds.verify / seconds for each, seconds in zip(steps, expected, strict=True) if seconds
        ]
        ratios.append(Timing.of(taken).lower_quartile if taken else 0.0)
    return 1 / median(ratios) if all(ratios) else 1.0


def _curves(seconds: Mapping[tuple[int, int], Sequence[float]]) -> Curves:
    curves: dict[int, dict[int, Timing]] = {}
    for (context, size), times in seconds.items():
        curves.setdefault(context, {})[size] = Timing.of(times)
    return curves
