"""How a drafter would fare on what a target writes, measured without a speculative run.

The text that the target wrote is enough. Given that text, a step accepts draft tokens with probabilities
that depend on nothing else: those of block verification, which sampled drafts get (see `_chained`), and a
deterministic guess is kept if and only if it is what the target wrote. So the steps that would have written
this text are a Markov chain over its positions, known for any number of draft tokens from one pass over the
text.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from draftwise.drafters.base import Drafter
from draftwise.models.base import LanguageModel
from draftwise.planning.guesses import Guess, guesses
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
    drafters: Mapping[str, Drafter],
    text: Text,
    samplings: Sequence[SamplingParams],
    max_draft_tokens: int = MAX_DRAFT_TOKENS,
) -> dict[str, list[Trace]]:
    """For each drafter a trace for each of `samplings`; each model reads the text once.

    A drafter that samples is taken to draw each token from a distribution that its prefix alone determines,
    as a draft model does. The chance that several tokens are accepted in a row is exact under the sampling
    that the text was written with, and for block verification; under another it is the product of their
    Σ min(p, q), which is that of token-wise verification. Raises what `guesses` raises.
    """
    replays = [_Replay(text, samplings, max_draft_tokens) for _ in drafters]
    guessing = (guesses(target, drafter, text, samplings, max_draft_tokens) for drafter in drafters.values())
    positions = zip(_target_probs(target, text, samplings), *guessing, strict=True)
    for at, (target_probs, *guessed) in enumerate(positions):
        for replay, guess in zip(replays, guessed, strict=True):
            replay.add(at, target_probs, guess)
    return {name: replay.traces() for name, replay in zip(drafters, replays, strict=True)}


class _Replay:
    """What becomes of one drafter's guesses, position by position."""

    def __init__(self, text: Text, samplings: Sequence[SamplingParams], max_draft_tokens: int) -> None:
        self._text = text
        self._samplings = samplings
        self._max_draft_tokens = max_draft_tokens
        self._rates = np.full((len(samplings), len(text)), np.nan)
        self._ratios = np.zeros_like(self._rates)  # q / p of what was written
        self._lengths = np.zeros(len(text), np.int64)
        self._copied = np.zeros(len(text), np.int64)  # how many tokens of a deterministic guess were written
        self._is_deterministic = False

    def add(self, at: int, target_probs: Sequence[Probs], guess: Guess) -> None:
        self._lengths[at] = guess.length
        if not guess.length:
            return
        written = self._text.output_ids[at]
        for index, (p, q) in enumerate(zip(target_probs, guess.probs, strict=True)):
            self._rates[index, at] = acceptance_rate(p, q)
            self._ratios[index, at] = (
                _probability(q, written) / _probability(p, written)
                if self._samplings[index] == self._text.sampling
                else self._rates[index, at]
            )
        if guess.token_ids is not None:
            self._is_deterministic = True
            self._copied[at] = _common(guess.token_ids, self._text.output_ids[at:])

    def traces(self) -> list[Trace]:
        most = self._max_draft_tokens
        return [
            Trace(
                self._text,
                sampling,
                rates,
                self._lengths,
                _replayed(self._copied, most) if self._is_deterministic else _chained(ratios, most),
            )
            for sampling, rates, ratios in zip(self._samplings, self._rates, self._ratios, strict=True)
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
