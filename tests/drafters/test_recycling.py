"""What is kept of the target's distributions, and what is drafted from it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwise.control.base import UpTo
from draftwise.decoding import generate
from draftwise.drafters.recycling import TokenRecycling, TokenRecyclingState
from draftwise.errors import OptionError
from draftwise.models.tabular import TabularModel
from draftwise.randomness import Streams
from draftwise.sampling import Sampler, SamplingParams, likeliest
from draftwise.types import Seconds, Step

TARGET = TabularModel.random(50, order=1, seed=0)


def propose(state: TokenRecyclingState, context: list[int], limit: int = 3) -> tuple[int, ...]:
    return state.propose([context], [UpTo(limit)], [Sampler(SamplingParams())], [Streams.seeded(0).drafting])[
        0
    ].token_ids


def step(drafted: tuple[int, ...], best: list[list[int]]) -> Step:
    """A step in which the target ranked these tokens first, after the text and after each drafted token."""
    logits = np.zeros((len(drafted) + 1, 9), np.float32)
    for row, ranked in zip(logits, best, strict=True):
        row[ranked] = range(len(ranked), 0, -1)
    return Step(0, drafted, 0, (best[0][0],), ("",), 1, Seconds(), logits=logits)


def test_what_the_target_ranked_first_is_drafted() -> None:
    drafter = TokenRecycling(num_candidates=2)
    state = drafter.open(TARGET, 1, 100)
    assert propose(state, [7, 1]) == ()
    assert state.confidence(0, [7, 1]) == 0
    state.observe(step((), [[2, 3]]))
    assert propose(state, [7, 1, 2, 1]) == (2,)
    state.observe(step((2,), [[3, 2], [4, 5]]))  # after 1 comes 3 now, and after 2, though rejected, 4
    assert propose(state, [7, 1, 2, 1, 3, 2]) == (4,)
    assert propose(state, [7, 1, 2, 1]) == (3,)
    assert drafter.candidates == {}
    state.close()
    assert drafter.candidates == {1: (3, 2), 2: (4, 5)}
    assert propose(drafter.open(TARGET, 1, 100), [2]) == (4,)


def test_a_chain_is_followed_as_far_as_the_limit() -> None:
    drafter = TokenRecycling()
    drafter.candidates.update({1: (2,), 2: (3,), 3: (1,)})
    state = drafter.open(TARGET, 1, 100)
    assert propose(state, [1], 5) == (2, 3, 1, 2, 3)
    assert propose(state, [1], 0) == ()


def test_nothing_outlives_a_sequence_unless_it_is_to_be_learnt() -> None:
    drafter = TokenRecycling(learn=False)
    generate(TARGET, [1], drafter=drafter, num_draft_tokens=None, max_new_tokens=20)
    assert drafter.candidates == {}


def test_a_text_generated_again_takes_fewer_passes() -> None:
    drafter = TokenRecycling()
    first = generate(TARGET, [1], drafter=drafter, num_draft_tokens=None, max_new_tokens=30)
    second = generate(TARGET, [1], drafter=drafter, num_draft_tokens=None, max_new_tokens=30)
    assert second.token_ids == first.token_ids
    assert second.target_passes < first.target_passes
    assert all(made.logits is None for made in second.steps)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 2000), st.integers(1, 10), st.integers(0, 100), st.booleans())
def test_the_likeliest_are_those_that_sorting_finds(size: int, count: int, seed: int, tied: bool) -> None:
    logits = np.random.default_rng(seed).standard_normal(size)
    logits = np.round(logits) if tied else logits
    found = likeliest(logits, count)
    assert logits[found].tolist() == sorted(logits.tolist(), reverse=True)[:count]
    assert len(set(found)) == min(count, size)
    assert found[0] == logits.argmax()


def test_impossible_numbers_are_refused() -> None:
    with pytest.raises(OptionError, match="num_candidates"):
        TokenRecycling(0)
