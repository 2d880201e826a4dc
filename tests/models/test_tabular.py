import subprocess
import sys

import numpy as np
import pytest

from draftwise.errors import ModelError
from draftwise.models.tabular import TabularModel

MODEL = TabularModel.random(4, 2, seed=0)


def test_logits_are_the_table() -> None:
    """The last two tokens decide, and token 0 stands before the first."""
    state = MODEL.open(3, 10)
    first, second, nothing = state.forward([[1, 2, 3], [3], []], [2, 1, 0])
    np.testing.assert_array_equal(first, MODEL.table[[1, 2], [2, 3]])
    np.testing.assert_array_equal(second, MODEL.table[[0], [3]])
    assert nothing.shape == (0, 4)
    assert state.lengths == [3, 1, 0]
    assert first.dtype == np.float64


@pytest.mark.parametrize("order", [0, 1, 3])
def test_orders(order: int) -> None:
    model = TabularModel.random(3, order, seed=1)
    assert model.context_length == order
    (logits,) = model.open(1, 5).forward([[0, 1, 2, 1]], [1])
    np.testing.assert_array_equal(logits[0], model.table[(0, 1, 2, 1)[4 - order :]])


def test_any_feed_and_any_rollback_equals_a_fresh_prefill() -> None:
    tokens = [int(token_id) for token_id in np.random.default_rng(0).integers(0, 4, 12)]
    (whole,) = MODEL.open(1, 12).forward([tokens], [12])
    state = MODEL.open(1, 20)
    for length in range(12):
        state.keep(0, length)
        (logits,) = state.forward([[*tokens[length:], 3, 3]], [14 - length])
        np.testing.assert_array_equal(logits[:-2], whole[length:])
        state.keep(0, length)
        state.keep(0, length)
        assert state.lengths == [length]
        state.forward([tokens[length : length + 3]], [0])


def test_rows_are_independent_and_can_be_used_again() -> None:
    state = MODEL.open(2, 10)
    state.forward([[1, 2], [3, 3]], [0, 0])
    state.keep(0, 0)
    (again, other) = state.forward([[2], [1]], [1, 1])
    np.testing.assert_array_equal(again[0], MODEL.table[0, 2])
    np.testing.assert_array_equal(other[0], MODEL.table[3, 1])


def test_trees() -> None:
    """A token sees its ancestors alone, and the path that is kept goes on like a chain."""
    state = MODEL.open(1, 20)
    state.forward([[1, 2]], [0])
    tree, parents = [3, 0, 1, 2, 3], [-1, -1, 0, 1, 2]
    (logits,) = state.forward([tree], [5], [parents])
    paths = [(2, 3), (2, 0), (3, 1), (0, 2), (1, 3)]
    np.testing.assert_array_equal(logits, [MODEL.table[path] for path in paths])
    state.keep_path(0, 2, [2, 4, 6])
    assert state.lengths == [5]
    (logits,) = state.forward([[0]], [1])
    np.testing.assert_array_equal(logits[0], MODEL.table[3, 0])
    state.keep(0, 4)
    (logits,) = state.forward([[2]], [1])
    np.testing.assert_array_equal(logits[0], MODEL.table[1, 2])


def test_a_matrix_of_probabilities() -> None:
    model = TabularModel.from_probs([[0.5, 0.5], [1.0, 0.0]], eos_token_ids=[1], max_length=9, name="coin")
    (logits,) = model.open(1, 9).forward([[0, 1]], [2])
    np.testing.assert_allclose(np.exp(logits), [[0.5, 0.5], [1.0, 0.0]], rtol=1e-15)
    assert (model.name, model.vocab_size, model.max_length) == ("coin", 2, 9)
    assert model.eos_token_ids == {1}
    assert model.tokenizer is None


def test_what_does_not_fit_is_refused() -> None:
    state = MODEL.open(1, 3)
    state.forward([[0, 1]], [1])
    with pytest.raises(ModelError, match="holds 2 of 3 tokens; 2 more"):
        state.forward([[0, 1]], [1])
    with pytest.raises(ModelError, match="token id 4 is outside tabular's vocabulary of 4"):
        state.forward([[4]], [1])
    with pytest.raises(ModelError, match="token id -1"):
        state.forward([[-1]], [1])
    with pytest.raises(ModelError, match=r"shape \(2, 3\)"):
        TabularModel(np.zeros((2, 3)))


def test_it_needs_no_engine() -> None:
    code = (
        "import sys, draftwise.decoding, draftwise.models.tabular;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'onnxruntime', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
