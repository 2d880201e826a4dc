"""The loop: draft, score, verify, emit. One step on one screen; `stream` and `generate` stand on it."""

from collections.abc import Generator
from collections.abc import Sequence as Tokens
from contextlib import closing
from dataclasses import replace
from time import perf_counter
from typing import Literal, Unpack

from draftwise.control.adaptive import Adaptive
from draftwise.control.base import Controller
from draftwise.control.cost import CostModel
from draftwise.control.fixed import Fixed
from draftwise.drafters.base import Drafter, DraftState
from draftwise.drafters.none import NoDrafter
from draftwise.drafters.several import Several
from draftwise.errors import OptionError
from draftwise.models.base import LanguageModel, ModelState
from draftwise.prompt import Prompt, opening
from draftwise.request import Options, Request
from draftwise.sampling import Distributions
from draftwise.sequence import Sequence
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
        emissions.append((verdict, emitted[: len(pieces)], pieces))

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
        )
        for row, (verdict, emitted, pieces) in zip(active, emissions, strict=True)
    ]
    for done in steps:
        drafting.observe(replace(done, logits=logits[done.row]))
        controller.observe(done)
    return steps


def begin(cache: ModelState, drafting: DraftState, rows: list[Sequence]) -> None:
    """Make target and drafter ready for the first step of these sequences."""
    for row, sequence in enumerate(rows):
        cache.begin(row, sequence.source)
        drafting.begin(row, sequence.source)


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
    asked = drafter if isinstance(drafter, Tokens) else [drafter] if drafter else []
    several = Several([each for each in asked if not isinstance(each, NoDrafter)])
    if isinstance(num_draft_tokens, str) and num_draft_tokens != "auto":
        raise OptionError(f'num_draft_tokens is {num_draft_tokens!r}; give "auto" or a number.')
    if num_draft_tokens is None or (num_draft_tokens == "auto" and not several.drafters):
        num_draft_tokens = several.default_num_draft_tokens
    alone = len(several.drafters) == 1 and num_draft_tokens != "auto"
    guesser = several.drafters[0] if alone else several
    controller = Fixed(num_draft_tokens) if isinstance(num_draft_tokens, int) else num_draft_tokens
    request = Request(prompt, **options)
    sequence = request.sequence(target)
    return _steps(target, guesser, controller, sequence, width_invariant, repeatable=request.seed is not None)


def _steps(
    target: LanguageModel,
    drafter: Drafter,
    controller: Controller | Literal["auto"],
    sequence: Sequence,
    width_invariant: bool,
    *,
    repeatable: bool,
) -> Generator[Step, None, None]:
    if controller == "auto":
        assert isinstance(drafter, Several)
        controller = Adaptive(CostModel.measured(target, drafter.drafters, constant=repeatable))
    with (
        closing(drafter.open(target, 1, sequence.max_length)) as drafting,
        closing(
            target.open(1, sequence.max_length, width_invariant=width_invariant, taps=drafting.taps)
        ) as cache,
    ):
        begin(cache, drafting, [sequence])
        while sequence.finish_reason is None:
            yield from step(cache, drafting, controller, [sequence])


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
