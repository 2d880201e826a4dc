"""The loop: draft, score, verify, emit. One step on one screen; all that generates stands on it."""

from collections.abc import Sequence as Tokens
from dataclasses import replace
from time import perf_counter

from draftwise.control.base import Controller
from draftwise.drafters.base import DraftState
from draftwise.models.base import ModelState
from draftwise.sampling import Distributions
from draftwise.sequence import Sequence
from draftwise.types import Seconds, Step


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
