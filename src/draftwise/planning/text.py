"""What a target writes, and how models score it afterwards."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from draftwise.decoding import generate
from draftwise.drafters.base import Drafter
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.models.base import LanguageModel, refuse_encoder
from draftwise.prompt import Prompt as AnyPrompt
from draftwise.prompt import encode_prompt
from draftwise.sampling import Sampler, SamplingParams
from draftwise.types import Logits, Step

# Guesses while a text is written: so few cost little where they are wrong, and nothing is known yet.
_NUM_DRAFT_TOKENS = 2
CHUNK = 32  # positions of a text that are scored at once: bounds the memory of their logits


@dataclass(frozen=True, slots=True)
class Text:
    """What the target wrote after one prompt.

    `steps`: those that wrote it; whatever the drafter, the text has the target's distribution. `drafters`:
    what drafted in them, as far as paid; empty where the steps say nothing of the drafters in question.
    """

    task: str
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    max_new_tokens: int
    sampling: SamplingParams
    steps: tuple[Step, ...]
    drafters: tuple[Drafter, ...] = ()

    def __len__(self) -> int:
        return len(self.output_ids)


def write_text(
    target: LanguageModel,
    prompt: AnyPrompt,
    *,
    task: str = "",
    sampling: SamplingParams | None = None,
    max_new_tokens: int = 128,
    seed: int | None = 0,
    drafters: Sequence[Drafter] = (),
) -> Text:
    """Have the target answer a prompt; raises what `generate` raises, and UnsupportedError for an encoder.

    `drafters`: with num_draft_tokens="auto"; none is a little prompt lookup, of which nothing need be known.
    """
    refuse_encoder(target, "planning")
    sampling = sampling or SamplingParams()
    prompt_ids = encode_prompt(target, prompt)
    generation = generate(
        target,
        prompt_ids,
        drafter=drafters or PromptLookup(),
        num_draft_tokens="auto" if drafters else _NUM_DRAFT_TOKENS,
        sampling=sampling,
        max_new_tokens=max_new_tokens,
        seed=seed,
    )
    return Text(
        task,
        tuple(prompt_ids),
        generation.token_ids,
        max_new_tokens,
        sampling,
        generation.steps,
        tuple(drafters),
    )


def scored(model: LanguageModel, text: Text, count: int, width: int = CHUNK) -> Iterator[Logits]:
    """The logits `[vocabulary]` from which each of the first `count` output tokens would be drawn.

    `width`: positions of a pass, as the bits of one may be those of width 1 alone.
    """
    # A draft model may know fewer tokens than the target writes; see DraftModelState.
    fed = [min(token_id, model.vocab_size - 1) for token_id in (*text.prompt_ids, *text.output_ids)]
    first = len(text.prompt_ids) - 1  # the token whose logits are the first output's
    if not count:
        return
    with closing(model.open(1, first + count, width_invariant=width > 1)) as state:
        if first:
            state.forward([fed[:first]], [1])
        for start in range(first, first + count, width):
            chunk = fed[start : min(start + width, first + count)]
            yield from state.forward([chunk], [len(chunk)])[0]


def samplers_along(
    target: LanguageModel, text: Text, samplings: Sequence[SamplingParams]
) -> Iterator[list[Sampler]]:
    """How each token of a text would be drawn under each sampling."""
    samplers = [Sampler.start(sampling, text.prompt_ids, target) for sampling in samplings]
    for token_id in text.output_ids:
        yield samplers
        samplers = [sampler.after([token_id]) for sampler in samplers]
