"""With each control, the exact joint law of the real loop is the target's under that control."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from draftwise import decoding
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.growth import DynamicTree, StaticTree
from draftwise.drafters.none import NoDrafter
from draftwise.drafters.several import Several
from draftwise.drafters.tree import TreeDraftModel
from draftwise.models.tabular import TabularModel
from draftwise.sampling import Distributions, Sampler, SamplingParams
from draftwise.types import Draft, Logits, TokenIds
from tests.enumeration import Tokens, distance, law_of_generate, law_of_steps, law_of_target
from tests.fakes import BlockDrafter, GuessingDrafter

PROMPT = (0, 1)
TARGET = TabularModel.random(3, 2, seed=1)
OTHER = TabularModel.random(3, 2, seed=2)
WARM = SamplingParams(1.3, top_p=0.95)

DRAFTERS: dict[str, Drafter] = {
    "none": NoDrafter(),
    "a draft model": DraftModel(OTHER),
    "a narrower draft model": DraftModel(TabularModel.random(2, 2, seed=4)),
    "a wider draft model": DraftModel(TabularModel.random(5, 2, seed=4)),
    "a guessed draft model": DraftModel(OTHER, drafter=DraftModel(TARGET)),
    "a deterministic guess": GuessingDrafter(lambda tokens: [(tokens[-1] + step) % 3 for step in (1, 2)]),
    "a block at once": BlockDrafter(OTHER),
    "a drawn tree": TreeDraftModel(OTHER, StaticTree.choices([(0,), (1,), (1, 0)]), sampled=True),
    "a dynamic tree": TreeDraftModel(OTHER, DynamicTree(5, width=2, depth=2)),
    "several": Several([GuessingDrafter(lambda tokens: [2, 1][tokens[-1] :]), DraftModel(OTHER)]),
}


def tiring(tokens: Tokens, logits: Logits) -> Logits:
    """Depends on every token so far, and on how often it came."""
    for token_id, count in Counter(tokens).items():
        logits[token_id] -= 0.7 * count
    logits[tokens[-2] if len(tokens) % 2 else sum(tokens) % 3] = -np.inf
    return logits


def as_control(control: Callable[[Tokens, Logits], Logits]) -> Callable[[TokenIds, Logits], Logits]:
    return lambda token_ids, logits: control(tuple(token_ids.tolist()), logits)


TIRING = replace(WARM, processors=[as_control(tiring)])


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("drafter", DRAFTERS.values(), ids=DRAFTERS)
def test_a_control_sees_the_tokens_before_each_position(drafter: Drafter, temperature: float) -> None:
    sampling = replace(TIRING, temperature=temperature)
    options = {"drafter": drafter, "sampling": sampling}
    expected = law_of_target(TARGET, PROMPT, 4, sampling, tiring)
    assert distance(law_of_generate(TARGET, PROMPT, 4, num_draft_tokens=2, **options), expected) < 1e-12
    assert distance(law_of_steps(TARGET, PROMPT, 4, num_draft_tokens=3, **options), expected) < 1e-12


@pytest.mark.parametrize("verification", ["token", "block", "matching", "coupled"])
@pytest.mark.parametrize("name", ["a draft model", "a drawn tree", "a block at once"])
def test_under_every_rule(name: str, verification: str) -> None:
    expected = law_of_target(TARGET, PROMPT, 4, TIRING, tiring)
    options: dict[str, Any] = {"drafter": DRAFTERS[name], "sampling": TIRING, "num_draft_tokens": 3}
    if verification == "coupled":  # which has no streams to enumerate: its tokens are those of plain decoding
        for seed in range(20):
            drafted, plain = (
                decoding.generate(
                    TARGET,
                    PROMPT,
                    **{**options, "drafter": using},
                    max_new_tokens=20,
                    verification=verification,
                    seed=seed,
                )
                for using in (DRAFTERS[name], None)
            )
            assert drafted.token_ids == plain.token_ids
    else:
        law = law_of_steps(TARGET, PROMPT, 4, verification=verification, **options)
        assert distance(law, expected) < 1e-12


def test_without_controls_the_text_is_not_kept() -> None:
    sampler = Sampler.start(WARM, PROMPT, TARGET)
    assert sampler.after([1, 2]) is sampler


# What follows is wrong on purpose: the comparison above has to see it.


class SeesTheTextAlone(Draft):
    """Gives every position of a draft the controls of the first."""

    def path_to(self, index: int) -> list[int]:
        return []


class CountsOncePerStep(Draft):
    """Takes a token that a draft repeats for one."""

    def path_to(self, index: int) -> list[int]:
        return list(dict.fromkeys(super().path_to(index)))


def with_fault(fault: type[Draft]) -> Callable[[Logits, Sampler, Draft], Distributions]:
    return lambda logits, sampler, draft: Distributions(
        logits, sampler, fault(draft.token_ids, draft.probs, draft.parents)
    )


@pytest.mark.parametrize("fault", [SeesTheTextAlone, CountsOncePerStep])
@pytest.mark.parametrize("name", ["a draft model", "a deterministic guess", "a drawn tree"])
def test_faults_are_seen(fault: type[Draft], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "Distributions", with_fault(fault))
    guesses = GuessingDrafter(lambda tokens: [2, 2, 2])
    drafter = guesses if name == "a deterministic guess" else DRAFTERS[name]
    law = law_of_steps(TARGET, PROMPT, 4, drafter=drafter, sampling=TIRING, num_draft_tokens=3)
    assert sum(law.values()) == pytest.approx(1, abs=1e-12)
    assert distance(law, law_of_target(TARGET, PROMPT, 4, TIRING, tiring)) > 1e-6
