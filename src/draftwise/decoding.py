"""`stream` and `generate`: one sequence from its prompt to its end."""

from collections.abc import Generator
from collections.abc import Sequence as Tokens
from contextlib import closing
from typing import Literal, Unpack

from draftwise.batch import Batch
from draftwise.control.base import Controller
from draftwise.drafters.base import Drafter
from draftwise.models.base import LanguageModel
from draftwise.prompt import Prompt, opening
from draftwise.request import Options, Request
from draftwise.sequence import Sequence
from draftwise.types import Generation, Step


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
