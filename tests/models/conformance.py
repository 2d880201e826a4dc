"""What every LanguageModel backend must do: the tests that each of them runs.

A new backend is one more `Backend` in the list of test_conformance.py.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest

from draftwise.errors import DraftwiseError, UnsupportedError
from draftwise.models.base import LanguageModel, ModelState
from draftwise.types import Logits, Source

MAX_LENGTH = 120
Tokens = list[int]


@dataclass(frozen=True)
class Backend:
    """A model of a backend, and what is asked of it."""

    name: str
    make: Callable[
        [], LanguageModel
    ]  # of any vocabulary of three tokens or more, for MAX_LENGTH tokens or more
    tolerance: float = 0.0  # by which logits that should be the same may differ; 0 asks for the same bits
    has_trees: bool = True
    source: Source | None = None  # what its encoder reads in every row, if it has one

    @cached_property
    def model(self) -> LanguageModel:
        return self.make()

    def open(self, num_sequences: int = 1, max_length: int = MAX_LENGTH) -> closing[ModelState]:
        state = self.model.open(num_sequences, max_length)
        for row in range(num_sequences):
            state.begin(row, self.source)
        return closing(state)

    def tokens(self, rng: np.random.Generator, count: int) -> Tokens:
        return [int(token_id) for token_id in rng.integers(0, self.model.vocab_size, count)]

    def fresh(self, tokens: Sequence[int], num_logits: int) -> Logits:
        """The logits of the last tokens of a text, read at once into a cache of its own."""
        with self.open() as state:
            (logits,) = state.forward([tokens], [num_logits])
            return np.array(logits)

    def assert_same(self, actual: Logits, expected: Logits) -> None:
        assert actual.shape == expected.shape
        assert not np.isnan(actual).any()
        np.testing.assert_allclose(actual, expected, rtol=0, atol=self.tolerance)

    def assert_trees_refused(self) -> None:
        with self.open() as state:
            with pytest.raises(UnsupportedError, match=self.model.name):
                state.forward([[0, 1]], [2], [[-1, -1]])
            assert list(state.lengths) == [0]


def random_tree(rng: np.random.Generator, size: int) -> Tokens:
    """Parents of a random tree, each before its children: branches here and there, and long ones."""
    return [token - 1 if rng.random() < 0.6 else int(rng.integers(-1, token)) for token in range(size)]


def path_to(parents: Sequence[int], token: int) -> Tokens:
    """The tokens of a tree from its root to one of them."""
    path: Tokens = []
    while token >= 0:
        path.insert(0, token)
        token = parents[token]
    return path


class LanguageModelConformance:
    """Subclass it under a `backend` fixture."""

    def test_logits_are_a_row_for_each_token_asked_for(self, backend: Backend) -> None:
        tokens = backend.tokens(np.random.default_rng(0), 9)
        whole = backend.fresh(tokens, 9)
        assert whole.shape == (9, backend.model.vocab_size)
        assert whole.dtype in (np.float32, np.float64)
        for num_logits in range(10):
            backend.assert_same(backend.fresh(tokens, num_logits), whole[9 - num_logits :])

    def test_keep_then_forward_equals_a_fresh_prefill(self, backend: Backend) -> None:
        rng = np.random.default_rng(1)
        tokens = backend.tokens(rng, 100)
        with backend.open() as state:
            for begin, end in zip([0, 1, 8, 10, 77], [1, 8, 10, 77, 100], strict=True):
                (logits,) = state.forward([tokens[begin:end]], [min(3, end - begin)])
                backend.assert_same(logits, backend.fresh(tokens[:end], len(logits)))
            # Near the end, around where windows and buffers end, and down to nothing.
            for length in (99, 98, 96, 90, 80, 76, 66, 65, 64, 63, 51, 33, 32, 31, 17, *reversed(range(11))):
                state.keep(0, length)
                assert list(state.lengths) == [length]
                # Another token than was there at first: what was rolled back must not shine through.
                branch = [*tokens[:length], *backend.tokens(rng, 3)]
                (logits,) = state.forward([branch[length:]], [3])
                backend.assert_same(logits, backend.fresh(branch, 3))

    def test_keep_is_absolute_and_idempotent(self, backend: Backend) -> None:
        tokens = backend.tokens(np.random.default_rng(2), 20)
        with backend.open() as state:
            state.forward([tokens], [0])
            for _ in range(3):
                state.keep(0, 12)
            assert list(state.lengths) == [12]
            (logits,) = state.forward([tokens[12:]], [8])
            state.keep(0, 20)
            backend.assert_same(logits, backend.fresh(tokens, 8))

    def test_a_freed_row_serves_another_sequence(self, backend: Backend) -> None:
        rng = np.random.default_rng(3)
        first, second = backend.tokens(rng, 30), backend.tokens(rng, 11)
        with backend.open(2) as state:
            state.forward([first, first], [0, 0])
            state.begin(1, backend.source)
            kept, new = state.forward([first[:1], second], [1, 11])
            backend.assert_same(new, backend.fresh(second, 11))
            backend.assert_same(kept, backend.fresh([*first, first[0]], 1))

    def test_a_copied_row_goes_on_by_itself(self, backend: Backend) -> None:
        rng = np.random.default_rng(14)
        text, older, one, other = (backend.tokens(rng, count) for count in (30, 50, 4, 7))
        with backend.open(3) as state:
            state.forward([[], text, older], [0, 0, 0])
            state.copy(1, 0)
            state.copy(1, 2)
            assert list(state.lengths) == [30, 30, 30]
            logits = state.forward([one, other, [*other, *one]], [4, 7, 11])
            for after, scored in zip([one, other, [*other, *one]], logits, strict=True):
                backend.assert_same(scored, backend.fresh([*text, *after], len(after)))
            state.keep(0, 30)
            (again, _, _) = state.forward([other, [], []], [7, 0, 0])
            backend.assert_same(again, backend.fresh([*text, *other], 7))

    def test_any_forwards_and_rejections_equal_a_fresh_prefill(self, backend: Backend) -> None:
        rng = np.random.default_rng(4)
        texts: list[Tokens] = [[], [], []]
        with backend.open(3) as state:
            for _ in range(15):
                feeds = [backend.tokens(rng, int(rng.integers(0, 7))) for _ in texts]
                wanted = [int(rng.integers(0, len(feed) + 1)) for feed in feeds]
                texts = [[*text, *feed] for text, feed in zip(texts, feeds, strict=True)]
                for text, logits, count in zip(texts, state.forward(feeds, wanted), wanted, strict=True):
                    backend.assert_same(logits, backend.fresh(text, count))
                for row, text in enumerate(texts):
                    del text[rng.integers(max(0, len(text) - 5), len(text) + 1) :]
                    state.keep(row, len(text))
                assert list(state.lengths) == [len(text) for text in texts]

    def test_rows_do_not_see_each_other(self, backend: Backend) -> None:
        rng = np.random.default_rng(5)
        texts = [backend.tokens(rng, count) for count in (1, 90, 0, 33, 2)]
        with backend.open(5) as state:
            together = state.forward(texts, [len(text) for text in texts])
            for text, logits in zip(texts, together, strict=True):
                backend.assert_same(logits, backend.fresh(text, len(text)))

    def test_an_empty_feed_leaves_its_row_alone(self, backend: Backend) -> None:
        rng = np.random.default_rng(6)
        idle, busy = backend.tokens(rng, 15), backend.tokens(rng, 40)
        with backend.open(3) as state:
            state.forward([idle, [], idle], [0, 0, 0])
            (first, _, last) = state.forward([[], busy, []], [0, 40, 0])
            assert first.shape == last.shape == (0, backend.model.vocab_size)
            assert list(state.lengths) == [15, 40, 15]
            (first, none, last) = state.forward([idle[:2], [], busy[:9]], [2, 0, 9])
            assert none.shape == (0, backend.model.vocab_size)
            backend.assert_same(first, backend.fresh([*idle, *idle[:2]], 2))
            backend.assert_same(last, backend.fresh([*idle, *busy[:9]], 9))
            assert all(len(logits) == 0 for logits in state.forward([[], [], []], [0, 0, 0]))

    def test_two_states_of_one_model_are_independent(self, backend: Backend) -> None:
        rng = np.random.default_rng(7)
        texts = backend.tokens(rng, 24), backend.tokens(rng, 24)
        with backend.open() as one, backend.open() as other:
            for begin in range(0, 24, 6):
                for text, state in zip(texts, (one, other), strict=True):
                    (logits,) = state.forward([text[begin : begin + 6]], [6])
                    backend.assert_same(logits, backend.fresh(text[: begin + 6], 6))

    def test_more_tokens_than_a_row_holds_are_refused_and_harm_nothing(self, backend: Backend) -> None:
        tokens = backend.tokens(np.random.default_rng(8), 20)
        with backend.open(2, max_length=16) as state:
            state.forward([tokens[:10], tokens[:10]], [0, 0])
            with pytest.raises(DraftwiseError, match="16"):
                state.forward([tokens[10:12], tokens[10:17]], [2, 7])
            assert list(state.lengths) == [10, 10]
            for logits in state.forward([tokens[10:16], tokens[10:16]], [6, 6]):
                backend.assert_same(logits, backend.fresh(tokens[:16], 6))
            with pytest.raises(DraftwiseError, match="16"):
                state.forward([tokens[16:17], []], [1, 0])

    def test_a_closed_state_can_be_closed_again_and_the_model_opened_again(self, backend: Backend) -> None:
        tokens = backend.tokens(np.random.default_rng(9), 10)
        with backend.open() as state:
            (logits,) = state.forward([tokens], [10])
            expected = np.array(logits)
            state.close()
        backend.assert_same(backend.fresh(tokens, 10), expected)

    def test_a_tree_scores_each_token_as_the_chain_from_the_root(self, backend: Backend) -> None:
        if not backend.has_trees:
            backend.assert_trees_refused()
            return
        rng = np.random.default_rng(10)
        for held in (0, 1, 50):
            text, tree = backend.tokens(rng, held), backend.tokens(rng, 24)
            parents = random_tree(rng, 24)
            with backend.open(2) as state:
                state.forward([text, []], [0, 0])
                # Beside a row that is a chain.
                logits, chain = state.forward([tree, tree[:4]], [24, 4], [parents, None])
                backend.assert_same(chain, backend.fresh(tree[:4], 4))
                for token in range(24):
                    branch = [tree[index] for index in path_to(parents, token)]
                    backend.assert_same(logits[token : token + 1], backend.fresh([*text, *branch], 1))

    def test_text_and_a_tree_after_it_can_be_fed_at_once(self, backend: Backend) -> None:
        if not backend.has_trees:
            backend.assert_trees_refused()
            return
        rng = np.random.default_rng(13)
        for held, count in ((0, 1), (3, 40), (60, 9)):
            text, tree = backend.tokens(rng, held + count), backend.tokens(rng, 9)
            parents = random_tree(rng, 9)
            below = [*range(-1, count - 1), *(count + parent for parent in parents)]
            with backend.open(2) as state:
                state.forward([text[:held], []], [0, 0])
                logits, _ = state.forward([[*text[held:], *tree], text], [10, 1], [below, None])
                backend.assert_same(logits[:1], backend.fresh(text, 1))
                for token in range(9):
                    branch = [tree[index] for index in path_to(parents, token)]
                    backend.assert_same(logits[token + 1 : token + 2], backend.fresh([*text, *branch], 1))

    def test_any_path_of_a_tree_can_be_kept(self, backend: Backend) -> None:
        if not backend.has_trees:
            backend.assert_trees_refused()
            return
        rng = np.random.default_rng(11)
        text, tree, after = backend.tokens(rng, 30), backend.tokens(rng, 8), backend.tokens(rng, 12)
        parents = random_tree(rng, 8)
        for token in range(-1, 8):
            path = path_to(parents, token)
            with backend.open(2) as state:
                state.forward([[], text], [0, 0])
                state.forward([[], tree], [0, 0], [None, parents])
                state.keep_path(1, 30, [30 + index for index in path])
                kept = [*text, *(tree[index] for index in path)]
                assert list(state.lengths) == [0, len(kept)]
                _, logits = state.forward([[], after], [0, 12])
                backend.assert_same(logits, backend.fresh([*kept, *after], 12))

    def test_a_chain_is_a_path_too(self, backend: Backend) -> None:
        rng = np.random.default_rng(12)
        text, after = backend.tokens(rng, 10), backend.tokens(rng, 3)
        with backend.open() as state:
            state.forward([text], [0])
            state.keep_path(0, 10, [])
            state.keep_path(0, 6, [6, 7])
            (logits,) = state.forward([after], [3])
            backend.assert_same(logits, backend.fresh([*text[:8], *after], 3))
