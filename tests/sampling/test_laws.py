"""With each control, the exact joint law of the real loop is the target's under that control."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwise import decoding, loop
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
from tests.sampling.naive import ended, naive

PROMPT = (0, 1)
EOS = 2
TARGET = TabularModel.random(3, 2, seed=1)
ENDING = TabularModel(TARGET.table, eos_token_ids=[EOS])
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
    "a deep tree": TreeDraftModel(OTHER, StaticTree.choices([(0,), (0, 0), (0, 0, 0)]), sampled=True),
    "a dynamic tree": TreeDraftModel(OTHER, DynamicTree(5, width=2, depth=2)),
    "several": Several([GuessingDrafter(lambda tokens: [2, 1][tokens[-1] :]), DraftModel(OTHER)]),
}
CONTROLS: dict[str, dict[str, Any]] = {
    "repetition": {"repetition_penalty": 1.7},
    "repetition wanted": {"repetition_penalty": 0.6},
    "presence": {"presence_penalty": 0.8},
    "frequency": {"frequency_penalty": 0.9},
    "bias": {"logit_bias": {1: -1.5, 2: 0.5}},
    "a banned token": {"banned": [1]},
    "banned sequences": {"banned": [[0, 0], (1, 2), [1, 0, 2], [0, 1, 0]]},
    "no early end": {"min_new_tokens": 3},
    "typical": {"typical_p": 0.6},
}
every_drafter = pytest.mark.parametrize("drafter", DRAFTERS.values(), ids=DRAFTERS)


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
@every_drafter
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


@pytest.mark.parametrize("temperature", [0.0, 1.3])
@pytest.mark.parametrize("control", CONTROLS.values(), ids=CONTROLS)
@every_drafter
def test_each_control(drafter: Drafter, control: dict[str, Any], temperature: float) -> None:
    sampling = SamplingParams(temperature, **control)
    law = law_of_generate(ENDING, PROMPT, 4, drafter=drafter, sampling=sampling, num_draft_tokens=3)
    expected = law_of_target(TARGET, PROMPT, 4, sampling, naive(sampling, len(PROMPT), [EOS]))
    assert distance(law, ended(expected, [EOS])) < 1e-12
    if temperature:
        assert distance(law, ended(law_of_target(TARGET, PROMPT, 4, SamplingParams(1.3)), [EOS])) > 1e-3


combinations = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.7, 1.0, 1.6]),
    top_k=st.none() | st.integers(1, 4),
    top_p=st.floats(0.3, 1),
    min_p=st.floats(0, 0.5),
    typical_p=st.floats(0.3, 1),
    repetition_penalty=st.floats(0.5, 2),
    presence_penalty=st.floats(-1, 2),
    frequency_penalty=st.floats(-1, 2),
    logit_bias=st.dictionaries(st.integers(0, 3), st.floats(-2, 2), max_size=2),
    banned=st.lists(
        st.lists(st.integers(0, 3), min_size=2, max_size=3), max_size=3, unique_by=lambda x: x[0]
    ),
    min_new_tokens=st.integers(0, 3),
)
drafters: st.SearchStrategy[Drafter] = st.one_of(
    st.builds(
        lambda size, seed: DraftModel(TabularModel.random(size, 2, seed)),
        st.integers(3, 5),
        st.integers(0, 99),
    ),
    st.builds(
        lambda shape, sampled, seed: TreeDraftModel(TabularModel.random(4, 2, seed), shape, sampled=sampled),
        st.sampled_from([StaticTree.branching(2, 1), StaticTree.choices([(0,), (0, 0), (1,)])]),
        st.booleans(),
        st.integers(0, 99),
    ),
    st.builds(
        lambda stride: GuessingDrafter(lambda tokens: [(tokens[-1] + stride * n) % 4 for n in (1, 2, 3)]),
        st.integers(0, 3),
    ),
)


@settings(max_examples=60, deadline=None)
@given(
    combinations,
    drafters,
    st.integers(0, 1000),
    st.integers(1, 3),
    st.sampled_from(["auto", "token", "block", "matching"]),
)
def test_combinations(
    sampling: SamplingParams, drafter: Drafter, seed: int, num_draft_tokens: int, verification: str
) -> None:
    target = TabularModel.random(4, 2, seed, eos_token_ids=[3])
    prompt = (0, 2, 1)
    law = law_of_generate(
        target,
        prompt,
        3,
        drafter=drafter,
        sampling=sampling,
        num_draft_tokens=num_draft_tokens,
        verification=verification,
    )
    expected = law_of_target(target, prompt, 3, sampling, naive(sampling, len(prompt), [3]))
    assert distance(law, ended(expected, [3])) < 1e-12


# What follows is wrong on purpose: the comparisons above have to see it.


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


FREQUENCY = replace(WARM, frequency_penalty=0.9)


@pytest.mark.parametrize("fault", [SeesTheTextAlone, CountsOncePerStep])
@pytest.mark.parametrize("name", ["a draft model", "a deterministic guess", "a deep tree"])
def test_faults_are_seen(fault: type[Draft], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "Distributions", with_fault(fault))
    guesses = GuessingDrafter(lambda tokens: [2, 2, 2])
    drafter = guesses if name == "a deterministic guess" else DRAFTERS[name]
    law = law_of_generate(TARGET, PROMPT, 3, drafter=drafter, sampling=FREQUENCY, num_draft_tokens=2)
    assert sum(law.values()) == pytest.approx(1, abs=1e-12)
    expected = law_of_target(TARGET, PROMPT, 3, FREQUENCY, naive(FREQUENCY, len(PROMPT)))
    assert distance(law, expected) > 1e-4
