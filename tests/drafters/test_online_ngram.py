"""An online n-gram model is the n-gram model that was counted from the tokens it holds."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from draftwise.drafters.ngram import NgramModel
from draftwise.drafters.online_ngram import OnlineNgramModel, OnlineNgramState
from draftwise.errors import OptionError, UnsupportedError

VOCAB_SIZE = 4
tokens = st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=12)
orders = st.integers(1, 4)


def counted(token_ids: Sequence[int], order: int) -> np.ndarray:
    model = NgramModel.count([list(token_ids)], VOCAB_SIZE, order)
    return model.logits_after(token_ids)


@settings(max_examples=100, deadline=None)
@given(tokens, orders)
def test_it_is_what_counting_its_tokens_makes(token_ids: list[int], order: int) -> None:
    (logits,) = OnlineNgramModel(VOCAB_SIZE, order).open(1, 100).forward([token_ids], [len(token_ids)])
    for size, row in enumerate(logits, start=1):
        assert_allclose(row, counted(token_ids[:size], order), rtol=1e-5, atol=1e-5)


@settings(max_examples=100, deadline=None)
@given(tokens, tokens, orders, st.data())
def test_going_back_forgets(first: list[int], second: list[int], order: int, data: st.DataObject) -> None:
    state = OnlineNgramModel(VOCAB_SIZE, order).open(1, 100)
    state.forward([first], [1])
    length = data.draw(st.integers(0, len(first)))
    state.keep(0, length)
    assert state.lengths == [length]
    (logits,) = state.forward([second], [1])
    assert_allclose(logits[0], counted([*first[:length], *second], order), rtol=1e-5, atol=1e-5)


def state_of(model: OnlineNgramModel, rows: int = 1) -> OnlineNgramState:
    return model.open(rows, 100)


def test_rows_count_for_themselves() -> None:
    state = state_of(OnlineNgramModel(VOCAB_SIZE, 2), 2)
    one, other = state.forward([[0, 1, 0], [2, 3]], [1, 1])
    assert_allclose(one[0], counted([0, 1, 0], 2), rtol=1e-5)
    assert_allclose(other[0], counted([2, 3], 2), rtol=1e-5)
    nothing, more = state.forward([[], [2]], [0, 1])
    assert nothing.shape == (0, VOCAB_SIZE)
    assert_allclose(more[0], counted([2, 3, 2], 2), rtol=1e-5)


def test_a_path_may_be_kept() -> None:
    state = state_of(OnlineNgramModel(VOCAB_SIZE, 3))
    state.forward([[0, 1, 2, 3, 1]], [1])
    state.keep_path(0, 2, [3])
    assert_allclose(state.forward([[0]], [1])[0][0], counted([0, 1, 3, 0], 3), rtol=1e-5)


def test_a_prior_takes_the_place_of_the_uniform_floor() -> None:
    prior = NgramModel.count([[0, 1, 0, 1, 0]], VOCAB_SIZE, order=2)
    (logits,) = state_of(OnlineNgramModel(VOCAB_SIZE, 1, prior)).forward([[2, 0]], [2])
    before = np.exp(prior.logits_after([2, 0]))
    # One of each of two tokens was counted: count + distinct = 4, and half the mass is the prior's.
    assert_allclose(np.exp(logits[1]), np.array([1, 0, 1, 0]) / 4 + before / 2, rtol=1e-5)


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(OptionError, match="order"):
        OnlineNgramModel(VOCAB_SIZE, 0)
    with pytest.raises(UnsupportedError, match="trees"):
        state_of(OnlineNgramModel(VOCAB_SIZE)).forward([[0, 1]], [1], [[-1, -1]])
