"""The loop: draft, score, verify, emit. One step on one screen; `stream` and `generate` stand on it."""

from collections.abc import Generator, Mapping
from collections.abc import Sequence as Tokens
from contextlib import closing
from dataclasses import replace
from operator import index
from time import perf_counter
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from draftwise.chat_template import Message
from draftwise.control.adaptive import Adaptive
from draftwise.control.base import Controller
from draftwise.control.cost import CostModel
from draftwise.control.fixed import Fixed
from draftwise.drafters.base import Drafter, DraftState
from draftwise.drafters.several import Several
from draftwise.errors import PromptError
from draftwise.models.base import LanguageModel, ModelState
from draftwise.randomness import CoupledStreams, Streams
from draftwise.sampling import Distributions, Sampler, SamplingParams
from draftwise.sequence import Sequence, StopConditions
from draftwise.tokenizer import Tokenizer
from draftwise.types import Generation, Seconds, Source, Step
from draftwise.verification import find_rule

Prompt = str | Tokens[int] | Tokens[Message] | NDArray[np.floating]
NO_PROMPT = "the prompt is none of text, token ids and chat messages; give one."
EMPTY_PROMPT = "the prompt is empty; give at least one character or one token."


def step(cache: ModelState, drafting: DraftState, controller: Controller, rows: list[Sequence]) -> list[Step]:
    """Advance every unfinished row by one target pass (Algorithm 1 of 2211.17192, row by row).

    The cache holds all but the last token of a row. At first it holds nothing, and the pass reads the prompt.
    The seconds of a step are those of the pass that its row shared with the others.
    """
    start = perf_counter()
    active = [row for row, sequence in enumerate(rows) if sequence.finish_reason is None]
    streams = [row.streams.at(len(row.token_ids)) for row in rows]
    drafts = drafting.propose(
        [row.token_ids for row in rows],
        controller.limits(rows),
        [row.sampler for row in rows],
        [each.drafting for each in streams],
    )
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
        target_probs = Distributions(logits[row], sequence.sampler, draft)
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
    sampling: SamplingParams | None = None,
    max_new_tokens: int = 256,
    num_draft_tokens: int | Literal["auto"] | Controller | None = None,
    stop: Tokens[str] = (),
    stop_token_ids: Tokens[int] = (),
    ignore_eos: bool = False,
    verification: str = "auto",
    lenience: float = 1.0,
    seed: int | None = None,
) -> Generator[Step, None, None]:
    """Generate from the target's distribution, yielding each step as soon as its tokens are known.

    `prompt`: text, token ids, or chat messages (`{"role": ..., "content": ...}`); the encoder of a target
    that has one reads it, or else sound: a waveform `[samples]` or features `[mel bins, frames]`. `drafter`:
    one, or several of which each step takes one. `num_draft_tokens`: the most tokens guessed for one target
    pass (γ); None takes the drafter's own default, and "auto" decides at each step how many pay, and from
    whom, by costs that are measured on this machine when first needed, and kept up with unless a seed is
    given. `sampling`: None is greedy. `verification`: the rule by its name in `draftwise.verification.RULES`;
    "auto" is the best exact one for each draft, and "coupled" has drafter and target share noise that follows
    from seed and position, so that the tokens are those of plain decoding with "coupled" and the same seed,
    as far as logits have the same bits at every width; "lenient" with a `lenience` below 1 gives up the
    target's distribution for speed (2211.17192, A.5). Options and prompt are checked here, before the first
    step; raises OptionError and PromptError. Closing the generator midway frees the caches and leaves target
    and drafter ready for use.
    """
    several = Several(drafter if isinstance(drafter, Tokens) else [drafter] if drafter else [])
    alone = len(several.drafters) == 1 and num_draft_tokens != "auto"
    guesser = several.drafters[0] if alone else several
    if num_draft_tokens is None:
        num_draft_tokens = several.default_num_draft_tokens
    controller = Fixed(num_draft_tokens) if isinstance(num_draft_tokens, int) else num_draft_tokens
    prompt_ids, source = opening(target, prompt)
    stop_conditions = StopConditions(
        max_new_tokens,
        frozenset() if ignore_eos else target.eos_token_ids,
        frozenset(stop_token_ids),
        (stop,) if isinstance(stop, str) else tuple(stop),
    )
    max_length = len(prompt_ids) + max_new_tokens
    if max_length > target.max_length:
        raise PromptError(
            f"the prompt has {len(prompt_ids)} tokens and max_new_tokens is {max_new_tokens}, but "
            f"{target.name} holds at most {target.max_length} tokens; shorten the prompt or ask for fewer."
        )
    sequence = Sequence(
        prompt_ids,
        stop_conditions,
        Sampler.start(sampling or SamplingParams(), prompt_ids, target),
        CoupledStreams(seed) if verification == "coupled" else Streams.seeded(seed),
        target.tokenizer,
        find_rule(verification, lenience),
        source,
    )
    return _steps(target, guesser, controller, sequence, max_length, repeatable=seed is not None)


def _steps(
    target: LanguageModel,
    drafter: Drafter,
    controller: Controller | Literal["auto"],
    sequence: Sequence,
    max_length: int,
    *,
    repeatable: bool,
) -> Generator[Step, None, None]:
    if controller == "auto":
        assert isinstance(drafter, Several)
        controller = Adaptive(CostModel.measured(target, drafter.drafters, constant=repeatable))
    with (
        closing(drafter.open(target, 1, max_length)) as drafting,
        closing(target.open(1, max_length, taps=drafting.taps)) as cache,
    ):
        begin(cache, drafting, [sequence])
        while sequence.finish_reason is None:
            yield from step(cache, drafting, controller, [sequence])


def generate(
    target: LanguageModel,
    prompt: Prompt,
    *,
    drafter: Drafter | Tokens[Drafter] | None = None,
    sampling: SamplingParams | None = None,
    max_new_tokens: int = 256,
    num_draft_tokens: int | Literal["auto"] | Controller | None = None,
    stop: Tokens[str] = (),
    stop_token_ids: Tokens[int] = (),
    ignore_eos: bool = False,
    verification: str = "auto",
    lenience: float = 1.0,
    seed: int | None = None,
) -> Generation:
    """Generate from the target's distribution; the options are those of `stream`."""
    prompt_ids, source = opening(target, prompt)
    steps = stream(
        target,
        prompt_ids if source is None else source,
        drafter=drafter,
        sampling=sampling,
        max_new_tokens=max_new_tokens,
        num_draft_tokens=num_draft_tokens,
        stop=stop,
        stop_token_ids=stop_token_ids,
        ignore_eos=ignore_eos,
        verification=verification,
        lenience=lenience,
        seed=seed,
    )
    with closing(steps):
        return Generation.of(steps, len(prompt_ids))


def opening(target: LanguageModel, prompt: Prompt) -> tuple[list[int], Source | None]:
    """The token ids that a sequence begins with, and what the target's encoder, if it has one, reads."""
    if target.encoder is None:
        return encode_prompt(target, prompt), None
    is_sound = isinstance(prompt, np.ndarray) and prompt.dtype.kind == "f"
    source = cast(NDArray[np.floating], prompt) if is_sound else tuple(encode_prompt(target, prompt))
    target.encoder.check(source)
    return list(target.encoder.start_ids), source


def encode_prompt(target: LanguageModel, prompt: Prompt) -> list[int]:
    """The token ids of a prompt: text and chat messages go through the target's tokenizer."""
    if isinstance(prompt, bytes | Mapping) or not hasattr(prompt, "__getitem__"):
        raise PromptError(NO_PROMPT)
    if len(prompt) == 0:
        raise PromptError(EMPTY_PROMPT)
    if isinstance(prompt, str) or isinstance(prompt[0], Mapping):
        if target.tokenizer is None:
            raise PromptError(f"{target.name} has no tokenizer; give the prompt as token ids.")
        _refuse_wordless(prompt, target.tokenizer)
        token_ids = (
            target.tokenizer.encode(prompt)
            if isinstance(prompt, str)
            else target.tokenizer.encode_chat(cast(Tokens[Message], prompt))
        )
    else:
        try:
            token_ids = [index(token_id) for token_id in cast(Tokens[int], prompt)]
        except TypeError:
            raise PromptError(NO_PROMPT) from None
    if not token_ids:
        raise PromptError("the prompt has no tokens; give at least one.")
    outside = next((token_id for token_id in token_ids if not 0 <= token_id < target.vocab_size), None)
    if outside is not None:
        raise PromptError(f"token id {outside} is outside {target.name}'s vocabulary of {target.vocab_size}.")
    return token_ids


def _refuse_wordless(prompt: Prompt, tokenizer: Tokenizer) -> None:
    """Raise PromptError for text or messages that are empty, or special tokens and nothing else."""
    texts = (
        [prompt]
        if isinstance(prompt, str)
        else [message.get("content") for message in cast(Tokens[Message], prompt)]
    )
    if not any(texts):
        raise PromptError(EMPTY_PROMPT)
    if not any(tokenizer.decode(tokenizer.encode(text)) if isinstance(text, str) else text for text in texts):
        raise PromptError(
            "the prompt is special tokens and nothing else; give at least one character of text."
        )
