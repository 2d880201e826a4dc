"""Every outcome of code that draws random numbers, with its exact probability."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from contextlib import closing
from typing import Any, TypeVar
from unittest.mock import patch

import pytest

from draftwise import decoding
from draftwise.models.base import LanguageModel
from draftwise.models.tabular import TabularModel
from draftwise.randomness import Streams
from draftwise.sampling import SamplingParams, adjusted_probs
from draftwise.types import Logits, Probs

Outcome = TypeVar("Outcome", bound=Hashable)
Tokens = tuple[int, ...]
Law = dict[Tokens, float]


class Decisions:
    """A `Randomness` that replays a script of outcomes, then takes the first outcome of each new decision.

    `untaken` holds the scripts that lead to the other outcomes.
    """

    def __init__(self, script: Sequence[int]) -> None:
        self._script = script
        self._taken: list[int] = []
        self.untaken: list[list[int]] = []
        self.probability = 1.0

    def accept(self, probability: float) -> bool:
        return bool(self._decide([1 - probability, probability]))

    def sample(self, probs: Probs) -> int:
        assert probs.sum() == pytest.approx(1, abs=1e-6)
        return self._decide(probs.tolist())

    def ahead(self, offset: int) -> "Decisions":
        return self

    def _decide(self, probabilities: list[float]) -> int:
        if len(self._taken) < len(self._script):
            outcome = self._script[len(self._taken)]
        else:
            outcome, *others = (index for index, probability in enumerate(probabilities) if probability > 0)
            self.untaken += [[*self._taken, other] for other in others]
        self._taken.append(outcome)
        self.probability *= probabilities[outcome]
        return outcome


def enumerate_outcomes(run: Callable[[Streams], Outcome]) -> dict[Outcome, float]:
    """The exact law of what `run` returns: it runs once for each way that its random decisions can fall."""
    law: dict[Outcome, float] = defaultdict(float)
    scripts: list[list[int]] = [[]]
    while scripts:
        decisions = Decisions(scripts.pop())
        law[run(Streams(decisions, decisions, decisions))] += decisions.probability
        scripts += decisions.untaken
    return dict(law)


def law_of_generate(target: TabularModel, prompt: Tokens, num_tokens: int, **options: Any) -> Law:
    """The law of all that the real `generate` emits, from the first step to the last."""

    def run(streams: Streams) -> Tokens:
        with patch.object(Streams, "seeded", lambda seed: streams):
            return decoding.generate(target, prompt, max_new_tokens=num_tokens, **options).token_ids

    return enumerate_outcomes(run)


def law_of_steps(target: TabularModel, prompt: Tokens, num_tokens: int, **options: Any) -> Law:
    """The law of the next tokens, put together from single steps of `stream` that no budget cuts."""

    def run(streams: Streams) -> Tokens:
        with patch.object(Streams, "seeded", lambda seed: streams):
            return next(iter(decoding.stream(target, prompt, **options))).emitted

    law: Law = defaultdict(float)
    for emitted, probability in enumerate_outcomes(run).items():
        missing = num_tokens - len(emitted)
        rest = law_of_steps(target, prompt + emitted, missing, **options) if missing > 0 else {(): 1.0}
        for more, probability_of_more in rest.items():
            law[(emitted + more)[:num_tokens]] += probability * probability_of_more
    return dict(law)


def law_of_target(
    model: LanguageModel,
    prompt: Tokens,
    num_tokens: int,
    sampling: SamplingParams,
    control: Callable[[Tokens, Logits], Logits] = lambda tokens, logits: logits,
) -> Law:
    """The law of the next tokens by the chain rule: products of the target's own adjusted probabilities.

    `control`: what is done to the logits after all tokens so far, before temperature and filters.
    """
    laws: Law = {(): 1.0}
    for _ in range(num_tokens):
        laws = {
            (*tokens, token_id): probability * p
            for tokens, probability in laws.items()
            for token_id, p in enumerate(_next_probs(model, prompt + tokens, sampling, control).tolist())
            if p > 0
        }
    return laws


def distance(one: Law, other: Law) -> float:
    """The largest difference of probability between two laws."""
    return max(abs(one.get(tokens, 0.0) - other.get(tokens, 0.0)) for tokens in one.keys() | other.keys())


def _next_probs(
    model: LanguageModel,
    tokens: Tokens,
    sampling: SamplingParams,
    control: Callable[[Tokens, Logits], Logits],
) -> Probs:
    with closing(model.open(1, len(tokens))) as state:
        (logits,) = state.forward([tokens], [1])
    return adjusted_probs(control(tokens, logits[0].copy()), sampling)
