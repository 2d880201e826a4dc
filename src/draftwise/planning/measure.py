"""How a drafter would fare on what a target writes, measured without a speculative run.

The text that the target wrote is enough. Given that text, a step accepts draft tokens with probabilities
that depend on nothing else: those of block verification, which sampled drafts get (see `_chained`), and a
deterministic guess is kept if and only if it is what the target wrote. So the steps that would have written
this text are a Markov chain over its positions, known for any number of draft tokens from one pass over the
text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from draftwise.drafters.base import Drafter
from draftwise.models.base import LanguageModel
from draftwise.planning.guesses import guesses
from draftwise.planning.text import Text, samplers_along, scored
from draftwise.sampling import SamplingParams, point_mass
from draftwise.theory import acceptance_rate
from draftwise.types import Probs

MAX_DRAFT_TOKENS = 16


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
    guessing = guesses(target, drafter, text, samplings, max_draft_tokens)
    rates = np.full((len(samplings), len(text)), np.nan)
    ratios = np.zeros_like(rates)
    lengths = np.zeros(len(text), np.int64)
    copied = np.zeros(len(text), np.int64)
    is_deterministic = False
    for at, (target_probs, guess) in enumerate(
        zip(_target_probs(target, text, samplings), guessing, strict=True)
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


def _target_probs(
    target: LanguageModel, text: Text, samplings: Sequence[SamplingParams]
) -> Iterator[list[Probs]]:
    """The target's distributions at each position of its text, under each sampling."""
    if text.sampling.temperature == 0 and all(sampling == text.sampling for sampling in samplings):
        for token_id in text.output_ids:  # greedy text says itself where the mass is
            yield [point_mass(token_id, token_id + 1, np.float64)] * len(samplings)
        return
    scores = scored(target, text, len(text))
    for logits, samplers in zip(scores, samplers_along(target, text, samplings), strict=True):
        yield [sampler.probs(logits) for sampler in samplers]


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
