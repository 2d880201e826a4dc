"""The loop: draft, score, verify, emit. One step on one screen; `stream` and `generate` stand on it."""

from collections.abc import Generator
from collections.abc import Sequence as Tokens
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Literal, Self, Unpack

from draftwise.checks import whole_number
from draftwise.control.adaptive import Adaptive
from draftwise.control.base import Controller
from draftwise.control.cost import CostModel
from draftwise.control.each_row import EachRow
from draftwise.control.fixed import Fixed
from draftwise.drafters.base import Drafter, DraftState
from draftwise.drafters.none import NoDrafter
from draftwise.drafters.several import Several
from draftwise.errors import OptionError, PromptError
from draftwise.models.base import LanguageModel, ModelState
from draftwise.prompt import Prompt, opening
from draftwise.request import Options, Request
from draftwise.sampling import Distributions
from draftwise.sequence import Sequence, nobody
from draftwise.types import Generation, Seconds, Step


def step(cache: ModelState, drafting: DraftState, controller: Controller, rows: list[Sequence]) -> list[Step]:
    """Advance every unfinished row by one target pass (Algorithm 1 of 2211.17192, row by row).

    The cache holds all but the last token of a row. At first it holds nothing, and the pass reads the prompt.
    The seconds of a step are those of the pass that its row shared with the others.
    """
    start = perf_counter()
    active = [row for row, sequence in enumerate(rows) if sequence.finish_reason is None]
    streams = [row.streams.at(len(row.token_ids)) for row in rows]
    limits = controller.limits(rows)
    samplers = [row.sampler for row in rows]
    drafts = drafting.propose(
        [row.token_ids for row in rows],
        limits,
        samplers,
        [each.drafting for each in streams],
    )
    drafts = [
        sampler.fit(draft, limit.allows)
        for sampler, draft, limit in zip(samplers, drafts, limits, strict=True)
    ]
    drafted = perf_counter()

    feeds: list[list[int]] = [[] for _ in rows]
    trees: list[list[int] | None] = [None for _ in rows]
    for row in active:
        feeds[row] = rows[row].token_ids[cache.lengths[row] :]
        trees[row] = drafts[row].parents_after(len(feeds[row]))
        feeds[row] += drafts[row].token_ids
    num_logits = [len(draft) + 1 if feed else 0 for draft, feed in zip(drafts, feeds, strict=True)]
    logits = cache.forward(feeds, num_logits, trees)
    scored = perf_counter()

    emissions = []
    for row in active:
        sequence, draft = rows[row], drafts[row]
        target_probs = Distributions(logits[row], samplers[row], draft)
        verdict = sequence.rule(draft, target_probs, streams[row].acceptance, streams[row].recovery)
        emitted = (*(draft.token_ids[index] for index in verdict.path), verdict.token_id)
        held = len(sequence.token_ids)
        pieces = sequence.extend(emitted)
        cache.keep_path(row, held, [held + index for index in verdict.path[: len(pieces) - 1]])
        emitted = emitted[: len(pieces)]
        logprobs = (
            sequence.logprobs.of(emitted, verdict.path, logits[row], target_probs)
            if sequence.logprobs
            else None
        )
        emissions.append((verdict, emitted, pieces, logprobs))

    seconds = Seconds(drafted - start, scored - drafted, perf_counter() - scored)
    steps = [
        Step(
            row,
            drafts[row].token_ids,
            verdict.num_accepted,
            emitted,
            pieces,
            len(feeds[row]),
            seconds,
            rows[row].finish_reason,
            drafts[row].parents,
            verdict.path,
            logprobs,
        )
        for row, (verdict, emitted, pieces, logprobs) in zip(active, emissions, strict=True)
    ]
    for done in steps:
        drafting.observe(replace(done, logits=logits[done.row]))
        controller.observe(done)
    return steps


def begin(cache: ModelState, drafting: DraftState, rows: Tokens[int], sequence: Sequence) -> list[Step]:
    """Make rows of target and drafter ready for the first step of a sequence.

    The prompt is left for that step to read; but several rows share one reading of it, up to its last token:
    a step for each, which emits nothing.
    """
    start = perf_counter()
    first, *others = rows
    cache.begin(first, sequence.source)
    for row in rows:
        drafting.begin(row, sequence.source)
    if not others:
        return []
    feeds: list[list[int]] = [[] for _ in cache.lengths]
    feeds[first] = sequence.token_ids[:-1]
    cache.forward(feeds, [0] * len(feeds))
    for row in others:
        cache.copy(first, row)
    seconds = Seconds(verify=perf_counter() - start)
    steps = [Step(row, (), 0, (), (), len(feeds[first]), seconds) for row in rows if feeds[first]]
    for done in steps:
        drafting.observe(done)
    return steps


class Batch:
    """Sequences that are generated together: each joins, goes on and leaves while others are under way.

    A context manager, inside which the caches are open: `num_rows` of them, each for a text of up to
    `max_length` tokens, prompt and output. `drafter`, `num_draft_tokens` and `width_invariant`: as `stream`
    takes them; a controller decides for all rows. With "auto" each row learns for itself how many tokens pay.
    One with a seed reckons as if it were alone, so that its tokens do not depend on the others; one without
    reckons that all rows draft as it does.

    Its tokens, its own options and its seed decide what becomes of a row, and never the other rows: as far as
    logits have the same bits in passes of any width, and unless its drafter learns from finished sequences.
    Raises OptionError for less than one row, and what opening target and drafter raises.
    """

    def __init__(
        self,
        target: LanguageModel,
        num_rows: int,
        max_length: int,
        *,
        drafter: Drafter | Tokens[Drafter] | None = None,
        num_draft_tokens: int | Literal["auto"] | Controller | None = "auto",
        width_invariant: bool = True,
    ) -> None:
        if whole_number("num_rows", num_rows) < 1:
            raise OptionError(f"num_rows is {num_rows}; give at least 1.")
        asked = drafter if isinstance(drafter, Tokens) and not isinstance(drafter, str) else [drafter]
        several = Several([each for each in asked if not isinstance(each, NoDrafter | None)])
        if isinstance(num_draft_tokens, str) and num_draft_tokens != "auto":
            raise OptionError(f'num_draft_tokens is {num_draft_tokens!r}; give "auto" or a number.')
        if num_draft_tokens is None or (num_draft_tokens == "auto" and not several.drafters):
            num_draft_tokens = several.default_num_draft_tokens
        alone = len(several.drafters) == 1 and isinstance(num_draft_tokens, int)
        self.target = target
        self.max_length = max_length
        self._width_invariant = width_invariant
        self._drafter = several.drafters[0] if alone else several
        self._controller: Controller = (
            EachRow(partial(_adaptive, target, several.drafters, num_rows))
            if num_draft_tokens == "auto"
            else num_draft_tokens
            if isinstance(num_draft_tokens, Controller)
            else Fixed(num_draft_tokens)
        )
        self._rows = [nobody() for _ in range(num_rows)]
        self._joining: list[list[tuple[int, Sequence]]] = []  # those added together, by their rows
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            num_rows = len(self._rows)
            drafting = self._drafter.open(self.target, num_rows, self.max_length)
            self._drafting = opened.enter_context(closing(drafting))
            cache = self.target.open(
                num_rows, self.max_length, width_invariant=self._width_invariant, taps=drafting.taps
            )
            self._cache = opened.enter_context(closing(cache))
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *failure: object) -> None:
        self._opened.close()

    @property
    def free_rows(self) -> tuple[int, ...]:
        """The rows that the next sequences take, in this order."""
        return tuple(row for row, sequence in enumerate(self._rows) if sequence.finish_reason)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return len(self.free_rows) == len(self._rows)

    def add(self, *sequences: Sequence) -> tuple[int, ...]:
        """Give each sequence a free row; the rows, which its steps name until it is finished.

        Several begin with the same prompt, which the target then reads once, in a step of its own that emits
        nothing. Raises OptionError where there are not so many rows free or prompts differ, PromptError for a
        sequence that may grow longer than a row.
        """
        rows = self.free_rows[: len(sequences)]
        if len(rows) < len(sequences):
            raise OptionError(
                f"{len(sequences)} sequences do not fit in the {len(rows)} free rows of a batch of "
                f"{len(self._rows)}; wait until others are finished, or open it with more rows."
            )
        for sequence in sequences:
            if not sequence.begins_as(sequences[0]):
                raise OptionError("sequences that are added together share one prompt; add these one by one.")
            if sequence.max_length > self.max_length:
                raise PromptError(
                    f"the prompt has {sequence.num_prompt_tokens} tokens and max_new_tokens is "
                    f"{sequence.stop.max_new_tokens}, but a row of this batch holds {self.max_length}; "
                    "shorten the prompt or ask for fewer."
                )
        group = list(zip(rows, sequences, strict=True))
        for row, sequence in group:
            self._rows[row] = sequence
        self._joining.append(group)
        return rows

    def remove(self, row: int) -> None:
        """Free a row whose sequence nobody waits for any longer."""
        self._rows[row] = nobody()

    def step(self) -> list[Step]:
        """Advance every sequence by one target pass; a step for each, and for those whose prompt is read."""
        joining, self._joining = self._joining, []
        read = [done for group in joining for done in self._join(group)]
        return read + step(self._cache, self._drafting, self._controller, self._rows)

    def _join(self, group: list[tuple[int, Sequence]]) -> list[Step]:
        """Make rows ready for those of a group that were not removed, and read what several share."""
        rows = [row for row, sequence in group if self._rows[row] is sequence]
        for row in rows:
            self._controller.begin(row, self._rows[row])
        return begin(self._cache, self._drafting, rows, self._rows[rows[0]]) if rows else []


def _adaptive(
    target: LanguageModel, drafters: Tokens[Drafter], num_rows: int, sequence: Sequence
) -> Controller:
    """What decides for one of several rows; no pass tells what it would take with one row alone."""
    if sequence.is_seeded:
        return Adaptive(CostModel.measured(target, drafters, constant=True))
    return Adaptive(CostModel.measured(target, drafters, constant=num_rows > 1, num_rows=num_rows))


def stream(
    target: LanguageModel,
    prompt: Prompt,
    *,
    drafter: Drafter | Tokens[Drafter] | None = None,
    num_draft_tokens: int | Literal["auto"] | Controller | None = "auto",
    width_invariant: bool = True,
    **options: Unpack[Options],
) -> Generator[Step, None, None]:
    """Generate from the target's distribution, yielding each step as soon as its tokens are known.

    `prompt` and `options`: as `Request` takes them. `drafter`: one, or several of which each step takes one.
    `num_draft_tokens`: "auto" decides at each step how many tokens pay, and from whom, by costs that are
    measured on this machine when first needed, and kept up with unless a seed is given; a number is the most
    guessed for each target pass (γ), and None the drafter's own. `width_invariant`: where the engine can,
    each position's logits have the same bits in passes of any width, so that greedy text is that of plain
    decoding to the last token; without it a lone token is scored a little faster, and ties may fall
    otherwise. All are checked here, before the first step; raises OptionError and PromptError. Closing the
    generator midway frees the caches and leaves target and drafter ready for use.
    """
    sequence = Request(prompt, **options).sequence(target)
    batch = Batch(
        target,
        1,
        sequence.max_length,
        drafter=drafter,
        num_draft_tokens=num_draft_tokens,
        width_invariant=width_invariant,
    )
    return _steps(batch, sequence)


def _steps(batch: Batch, sequence: Sequence) -> Generator[Step, None, None]:
    with batch:
        batch.add(sequence)
        while not batch.is_idle:
            yield from batch.step()


def generate(
    target: LanguageModel,
    prompt: Prompt,
    *,
    drafter: Drafter | Tokens[Drafter] | None = None,
    num_draft_tokens: int | Literal["auto"] | Controller | None = "auto",
    width_invariant: bool = True,
    **options: Unpack[Options],
) -> Generation:
    """Generate from the target's distribution; the options are those of `stream`."""
    prompt_ids, source = opening(target, prompt)
    read = prompt_ids if source is None else source
    steps = stream(
        target,
        read,
        drafter=drafter,
        num_draft_tokens=num_draft_tokens,
        width_invariant=width_invariant,
        **options,
    )
    with closing(steps):
        return Generation.of(steps, len(prompt_ids))
