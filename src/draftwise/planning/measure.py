"""How a drafter would fare on what a target writes, measured without a speculative run.

The text that the target wrote is enough. Given that text, a step accepts draft tokens with probabilities
that depend on nothing else: those of block verification, which sampled drafts get (see `_chained`), and a
deterministic guess is kept if and only if it is what the target wrote. So the steps that would have written
this text are a Markov chain over its positions, known for any number of draft tokens from one pass over the
text.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import repeat, takewhile

import numpy as np
from numpy.typing import NDArray

from draftwise.control.base import UpTo
from draftwise.decoding import generate
from draftwise.drafters.base import Drafter, DraftState
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.errors import UnsupportedError
from draftwise.models.base import LanguageModel, refuse_encoder
from draftwise.prompt import Prompt as AnyPrompt
from draftwise.prompt import encode_prompt
from draftwise.randomness import Streams
from draftwise.sampling import Sampler, SamplingParams, point_mass
from draftwise.theory import acceptance_rate
from draftwise.types import Draft, Logits, Probs, Seconds, Step

MAX_DRAFT_TOKENS = 16
CHUNK = 32  # positions of a text that are scored at once: bounds the memory of their logits


@dataclass(frozen=True, slots=True)
class Text:
    """What the target wrote after one prompt."""

    task: str
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    max_new_tokens: int
    sampling: SamplingParams
    steps: tuple[Step, ...]  # that wrote it: whatever the drafter, the text has the target's distribution

    def __len__(self) -> int:
        return len(self.output_ids)


@dataclass(frozen=True, slots=True)
class Trace:
    """How a drafter fares from each of the N positions of a text, were a step to begin there.

    `rates`: `[N]`, Σ min(p, q) of the first draft token, NaN where nothing is drafted. `lengths`: `[N]`, the
    tokens drafted where up to Γ may be. `survival`: `[N, Γ + 1]`, the probability, given the text, that the
    first 0, 1, ..., Γ of them are accepted.
    """

    text: Text
    sampling: SamplingParams
    rates: NDArray[np.float64]
    lengths: NDArray[np.int64]
    survival: NDArray[np.float64]

    @property
    def max_draft_tokens(self) -> int:
        return int(self.survival.shape[1]) - 1


def write_text(
    target: LanguageModel,
    prompt: AnyPrompt,
    *,
    task: str = "",
    sampling: SamplingParams | None = None,
    max_new_tokens: int = 128,
    seed: int | None = 0,
) -> Text:
    """Have the target answer a prompt; raises what `generate` raises, and UnsupportedError for an encoder."""
    refuse_encoder(target, "planning")
    sampling = sampling or SamplingParams()
    prompt_ids = encode_prompt(target, prompt)
    drafter = PromptLookup()
    generation = generate(
        target,
        prompt_ids,
        drafter=drafter,
        num_draft_tokens=drafter.default_num_draft_tokens,
        sampling=sampling,
        max_new_tokens=max_new_tokens,
        seed=seed,
    )
    return Text(task, tuple(prompt_ids), generation.token_ids, max_new_tokens, sampling, generation.steps)


def traces(
    target: LanguageModel,
    drafter: Drafter,
    text: Text,
    samplings: Sequence[SamplingParams],
    max_draft_tokens: int = MAX_DRAFT_TOKENS,
) -> list[Trace]:
    """A trace for each of `samplings`, from one pass over the text.

    A drafter that samples is taken to draw each token from a distribution that its prefix alone determines,
    as a draft model does. The chance that several tokens are accepted in a row is exact under the sampling
    that the text was written with, and for block verification; under another it is the product of their
    Σ min(p, q), which is that of token-wise verification. Raises
    TokenizerMismatchError where the drafter cannot draft for the target, and UnsupportedError for one that
    drafts trees, or samples from the target's hidden states: only a run shows what those do.
    """
    guesses = _guesses(target, drafter, text, samplings, max_draft_tokens)
    rates = np.full((len(samplings), len(text)), np.nan)
    ratios = np.zeros_like(rates)
    lengths = np.zeros(len(text), np.int64)
    copied = np.zeros(len(text), np.int64)
    is_deterministic = False
    for at, (target_probs, guess) in enumerate(
        zip(_target_probs(target, text, samplings), guesses, strict=True)
    ):
        lengths[at] = guess.length
        if not guess.length:
            continue
        for index, (p, q) in enumerate(zip(target_probs, guess.probs, strict=True)):
            rates[index, at] = acceptance_rate(p, q)
            written = text.output_ids[at]
            ratios[index, at] = (
                _probability(q, written) / _probability(p, written)
                if samplings[index] == text.sampling
                else rates[index, at]
            )
        if guess.token_ids is not None:
            is_deterministic = True
            copied[at] = _common(guess.token_ids, text.output_ids[at:])
    return [
        Trace(
            text,
            sampling,
            rates[index],
            lengths,
            _replayed(copied, max_draft_tokens)
            if is_deterministic
            else _chained(ratios[index], max_draft_tokens),
        )
        for index, sampling in enumerate(samplings)
    ]


@dataclass(frozen=True, slots=True)
class _Guess:
    """What a drafter says at one position: how many tokens, and the first one's q under each sampling.

    `token_ids`: all tokens of a deterministic guess, whose q are point masses; else None.
    """

    length: int
    probs: Sequence[Probs] = ()
    token_ids: tuple[int, ...] | None = None


def _guesses(
    target: LanguageModel,
    drafter: Drafter,
    text: Text,
    samplings: Sequence[SamplingParams],
    max_draft_tokens: int,
) -> Iterator[_Guess]:
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


def _proposed(draft: Draft, samplings: Sequence[SamplingParams], max_draft_tokens: int) -> _Guess:
    if not draft.token_ids:
        return _Guess(0)
    if draft.probs is not None:
        return _Guess(max_draft_tokens, [draft.probs[0]] * len(samplings))
    first = draft.token_ids[0]
    return _Guess(len(draft), [point_mass(first, first + 1, np.float64)] * len(samplings), draft.token_ids)


def _model_guesses(
    target: LanguageModel,
    model: LanguageModel,
    text: Text,
    samplings: Sequence[SamplingParams],
    max_draft_tokens: int,
) -> Iterator[_Guess]:
    """A draft model's own distributions, in a few wide passes; none where the text has outgrown it."""
    readable = max(0, min(len(text), model.max_length + 1 - len(text.prompt_ids)))
    scores = scored(model, text, readable, width_invariant=False)
    for logits, samplers in zip(scores, _samplers(target, text, samplings), strict=False):
        known = logits[: target.vocab_size]
        yield _Guess(max_draft_tokens, [sampler.probs(known) for sampler in samplers])
    yield from repeat(_Guess(0), len(text) - readable)


def _target_probs(
    target: LanguageModel, text: Text, samplings: Sequence[SamplingParams]
) -> Iterator[list[Probs]]:
    """The target's distributions at each position of its text, under each sampling."""
    if text.sampling.temperature == 0 and all(sampling == text.sampling for sampling in samplings):
        for token_id in text.output_ids:  # greedy text says itself where the mass is
            yield [point_mass(token_id, token_id + 1, np.float64)] * len(samplings)
        return
    scores = scored(target, text, len(text))
    for logits, samplers in zip(scores, _samplers(target, text, samplings), strict=True):
        yield [sampler.probs(logits) for sampler in samplers]


def _samplers(
    target: LanguageModel, text: Text, samplings: Sequence[SamplingParams]
) -> Iterator[list[Sampler]]:
    """How each token of a text would be drawn under each sampling."""
    samplers = [Sampler.start(sampling, text.prompt_ids, target) for sampling in samplings]
    for token_id in text.output_ids:
        yield samplers
        samplers = [sampler.after([token_id]) for sampler in samplers]


def scored(model: LanguageModel, text: Text, count: int, *, width_invariant: bool = True) -> Iterator[Logits]:
    """The logits `[vocabulary]` from which each of the first `count` output tokens would be drawn."""
    # A draft model may know fewer tokens than the target writes; see DraftModelState.
    fed = [min(token_id, model.vocab_size - 1) for token_id in (*text.prompt_ids, *text.output_ids)]
    first = len(text.prompt_ids) - 1  # the token whose logits are the first output's
    if not count:
        return
    with closing(model.open(1, first + count, width_invariant=width_invariant)) as state:
        if first:
            state.forward([fed[:first]], [1])
        for start in range(first, first + count, CHUNK):
            chunk = fed[start : min(start + CHUNK, first + count)]
            yield from state.forward([chunk], [len(chunk)])[0]


def _common(draft: Sequence[int], written: Sequence[int]) -> int:
    pairs = zip(draft, written, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _chained(ratios: NDArray[np.float64], max_draft_tokens: int) -> NDArray[np.float64]:
    """Survival `[N, Γ + 1]` under block verification, from q / p of what was written at each position `[N]`.

    A draft x^i is written and its first i tokens kept with probability q(x^i) P_i, where P_0 = 1 and
    P_i = min(1, P_(i-1) p_i / q_i) (2403.10444); p(x^i) is how likely the text is.
    """
    beyond = np.concatenate([ratios, np.zeros(max_draft_tokens)])
    survival = np.ones((len(ratios), max_draft_tokens + 1))
    block = np.ones(len(ratios))  # P_i
    for count in range(max_draft_tokens):
        ratio = beyond[count : count + len(ratios)]
        survival[:, count + 1] = survival[:, count] * np.minimum(1.0, ratio / block)
        block = np.divide(block, ratio, out=np.ones_like(block), where=ratio > block)
    return survival


def _replayed(copied: NDArray[np.int64], max_draft_tokens: int) -> NDArray[np.float64]:
    """Survival `[N, Γ + 1]` where exactly the first `copied` `[N]` tokens are what was written."""
    return (np.arange(max_draft_tokens + 1) <= copied[:, None]).astype(np.float64)


def _probability(probs: Probs, token_id: int) -> float:
    return float(probs[token_id]) if token_id < len(probs) else 0.0
