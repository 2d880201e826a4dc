"""What a drafter guesses at each position of a text, were a step to begin there."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from draftwise.control.base import UpTo
from draftwise.drafters.base import Drafter, DraftState
from draftwise.drafters.draft_model import DraftModel
from draftwise.errors import UnsupportedError
from draftwise.models.base import LanguageModel
from draftwise.planning.text import Text, samplers_along, scored
from draftwise.randomness import Streams
from draftwise.sampling import Sampler, SamplingParams, point_mass
from draftwise.types import Draft, Probs, Seconds, Step


@dataclass(frozen=True, slots=True)
class Guess:
    """What a drafter says at one position: how many tokens, and the first one's q under each sampling.

    `token_ids`: all tokens of a deterministic guess, whose q are point masses; else None.
    """

    length: int
    probs: Sequence[Probs] = ()
    token_ids: tuple[int, ...] | None = None


def guesses(
    target: LanguageModel,
    drafter: Drafter,
    text: Text,
    samplings: Sequence[SamplingParams],
    max_draft_tokens: int,
) -> Iterator[Guess]:
    """A guess for each token of a text, where up to `max_draft_tokens` may be drafted.

    A draft model reads the text token by token, as it drafts. Raises TokenizerMismatchError where the
    drafter cannot draft for the target, and UnsupportedError for one that drafts trees, or samples from the
    target's hidden states: only a run shows what those would bring.
    """
    with closing(drafter.open(target, 1, len(text.prompt_ids) + len(text))) as state:
        if isinstance(drafter, DraftModel):
            yield from _model_guesses(target, drafter.model, text, samplings, max_draft_tokens)
            return
        context = list(text.prompt_ids)
        drafting = Streams.seeded(0).drafting
        sampler = Sampler.start(text.sampling, context, target)
        with _listening(target, state, text) as hear:
            for token_id in text.output_ids:
                draft = state.propose([context], [UpTo(max_draft_tokens)], [sampler], [drafting])[0]
                if draft.parents is not None:
                    raise UnsupportedError(_only_a_run_shows(drafter.name, "drafts trees"))
                if state.taps and draft.probs is not None:
                    raise UnsupportedError(
                        _only_a_run_shows(drafter.name, "samples from the target's hidden states")
                    )
                yield _proposed(draft, samplings, max_draft_tokens)
                hear(context, token_id)
                context.append(token_id)
                sampler = sampler.after([token_id])


def refuse_unpredictable(target: LanguageModel, drafter: Drafter, prompt_ids: Sequence[int]) -> None:
    """Raise what `guesses` would on any text: one guess at the end of a prompt tells."""
    *before, last = (*prompt_ids[:1], *prompt_ids)
    text = Text("", tuple(before), (last,), 1, SamplingParams(), ())
    for _ in guesses(target, drafter, text, [text.sampling], 2):
        pass


@contextmanager
def _listening(
    target: LanguageModel, state: DraftState, text: Text
) -> Iterator[Callable[[Sequence[int], int], None]]:
    """What has a drafter observe the plain steps that write a text, if it reads hidden states of them."""
    if not state.taps:
        yield lambda context, token_id: None
        return
    length = len(text.prompt_ids) + len(text)
    with closing(target.open(1, length, taps=state.taps)) as cache:

        def hear(context: Sequence[int], token_id: int) -> None:
            feed = context[cache.lengths[0] :]
            cache.forward([feed], [1])
            state.observe(Step(0, (), 0, (token_id,), ("",), len(feed), Seconds()))

        yield hear


def _only_a_run_shows(name: str, reason: str) -> str:
    return f"what {name} would bring cannot be told from a text, as it {reason}; compare real runs instead."


def _proposed(draft: Draft, samplings: Sequence[SamplingParams], max_draft_tokens: int) -> Guess:
    if not draft.token_ids:
        return Guess(0)
    if draft.probs is not None:
        return Guess(max_draft_tokens, [draft.probs[0]] * len(samplings))
    first = draft.token_ids[0]
    return Guess(len(draft), [point_mass(first, first + 1, np.float64)] * len(samplings), draft.token_ids)


def _model_guesses(
    target: LanguageModel,
    model: LanguageModel,
    text: Text,
    samplings: Sequence[SamplingParams],
    max_draft_tokens: int,
) -> Iterator[Guess]:
    """A draft model's own distributions, in passes as it drafts; none where the text has outgrown it."""
    readable = max(0, min(len(text), model.max_length + 1 - len(text.prompt_ids)))
    scores = scored(model, text, readable, width=1)
    for logits, samplers in zip(scores, samplers_along(target, text, samplings), strict=False):
        known = logits[: target.vocab_size]
        yield Guess(max_draft_tokens, [sampler.probs(known) for sampler in samplers])
    yield from repeat(Guess(0), len(text) - readable)
