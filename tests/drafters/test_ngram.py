"""Counts against the formula, and files that are whole or refused."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwise.decoding import generate
from draftwise.drafters.ngram import NgramModel
from draftwise.errors import ModelError, OptionError, TokenizerMismatchError
from draftwise.tokenizer import Tokenizer

WORDS = ("?", "the", "cat", "sat", "on", "mat")


def word_tokenizer(*words: str, name: str = "words") -> Tokenizer:
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: index for index, word in enumerate(words)}, unk_token=words[0])
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return Tokenizer(backend, name=name, eos_token_ids=[0])


def probs_after(model: NgramModel, context: Sequence[int]) -> np.ndarray:
    return np.exp(model.logits_after(context).astype(np.float64))


def witten_bell(
    texts: Sequence[Sequence[int]], vocab_size: int, context: tuple[int, ...], token_id: int
) -> float:
    """The formula, counted anew for every context."""
    followers = Counter(
        text[end]
        for text in texts
        for end in range(len(context), len(text))
        if tuple(text[end - len(context) : end]) == context
    )
    back_off = witten_bell(texts, vocab_size, context[1:], token_id) if context else 1 / vocab_size
    if not followers:
        return back_off
    return (followers[token_id] + len(followers) * back_off) / (followers.total() + len(followers))


def test_the_most_frequent_come_first_and_of_the_unseen_the_first() -> None:
    model = NgramModel.count([[4, 2, 4, 2, 4, 5]], 8, 1)
    assert model.most_frequent(3) == [4, 2, 5]
    assert model.most_frequent(5) == [4, 2, 5, 0, 1]
    assert sorted(model.most_frequent(100)) == list(range(8))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 3), max_size=12), min_size=1, max_size=4).filter(any),
    st.integers(1, 4),
    st.lists(st.integers(0, 4), max_size=5),
)
def test_probabilities_are_the_formula(texts: list[list[int]], order: int, context: list[int]) -> None:
    model = NgramModel.count(texts, 5, order)
    probs = probs_after(model, context)
    history = tuple(context[max(0, len(context) - order + 1) :])
    expected = [witten_bell(texts, 5, history, token_id) for token_id in range(5)]
    np.testing.assert_allclose(probs, expected, rtol=1e-5)
    assert probs.sum() == pytest.approx(1, abs=1e-6)
    assert model.logits_after(context).dtype == np.float32
    assert (model.order, model.vocab_size) == (order, 5)


def test_a_bigram_by_hand() -> None:
    model = NgramModel.count([[0, 1, 0, 1], [0, 2]], vocab_size=4)
    unigram = np.array([3, 2, 1, 0]) / 9 + 3 / 9 / 4
    np.testing.assert_allclose(probs_after(model, []), unigram, rtol=1e-6)
    after_0 = np.array([0, 2, 1, 0]) / 5 + 2 / 5 * unigram
    np.testing.assert_allclose(probs_after(model, [3, 0]), after_0, rtol=1e-6)
    np.testing.assert_allclose(probs_after(model, [2]), unigram, rtol=1e-6)  # nothing followed a 2


def test_an_unseen_context_backs_off_whatever_came_before() -> None:
    model = NgramModel.count([[1, 0, 2]], vocab_size=4, order=3)
    np.testing.assert_array_equal(model.logits_after([1, 3]), model.logits_after([]))


def test_large_vocabularies_do_not_mix_contexts() -> None:
    texts = np.random.default_rng(0).integers(150_000, 152_000, size=(1, 400)).tolist()
    model = NgramModel.count(texts, 152_000, order=3)
    for end in (10, 200, 399):
        context = tuple(texts[0][end - 2 : end])
        assert probs_after(model, context).argmax() == texts[0][end]
        expected = witten_bell(texts, 152_000, context, texts[0][end])
        assert probs_after(model, context)[texts[0][end]] == pytest.approx(expected, rel=1e-5)


def test_it_is_a_language_model() -> None:
    model = NgramModel.count([[0, 1, 2, 3] * 5], vocab_size=4, order=3)
    assert generate(model, [0, 1], max_new_tokens=6).token_ids == (2, 3, 0, 1, 2, 3)
    drafter = model.drafter()
    assert drafter.default_num_draft_tokens == 3
    drafted = generate(model, [0, 1], max_new_tokens=9, drafter=drafter, num_draft_tokens=None)
    assert drafted.token_ids == (2, 3, 0, 1, 2, 3, 0, 1, 2)
    assert drafted.acceptance_rate == 1


@pytest.mark.parametrize("order", [0, -1])
def test_an_order_below_one_is_refused(order: int) -> None:
    with pytest.raises(OptionError, match="order"):
        NgramModel.count([[1]], 4, order)


@pytest.mark.parametrize("texts", [[], [[]]])
def test_nothing_to_count_is_refused(texts: list[list[int]]) -> None:
    with pytest.raises(ModelError, match="nothing to count"):
        NgramModel.count(texts, 4)


@pytest.mark.parametrize("token_id", [-1, 4])
def test_tokens_outside_the_vocabulary_are_refused(token_id: int) -> None:
    with pytest.raises(ModelError, match=f"token id {token_id} is outside"):
        NgramModel.count([[0, token_id]], 4)


def test_text_files_are_counted_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("the cat sat on", encoding="utf-8")
    (tmp_path / "two.txt").write_text("the mat", encoding="utf-8")
    paths: list[Path | str] = [tmp_path / "one.txt", str(tmp_path / "two.txt")]
    model = NgramModel.from_text_files(paths, word_tokenizer(*WORDS))
    counted = NgramModel.count([[1, 2, 3, 4], [1, 5]], vocab_size=6)
    for context in ([], [1], [4]):  # 4, 1 is no bigram: a file ends between them
        np.testing.assert_array_equal(model.logits_after(context), counted.logits_after(context))
    assert model.eos_token_ids == {0}
    assert NgramModel.from_text_files(paths, word_tokenizer(*WORDS), vocab_size=10).vocab_size == 10


def test_text_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes("the café".encode("latin-1"))
    for name, what in [("latin.txt", r"not UTF-8 text \(byte 7 is 0xe9\)"), ("none.txt", "cannot be read")]:
        with pytest.raises(ModelError, match=f"{name} .*{what}"):
            NgramModel.from_text_files([tmp_path / name], word_tokenizer(*WORDS))


@pytest.mark.parametrize("order", [1, 2, 4])
def test_a_saved_model_is_the_same(tmp_path: Path, order: int) -> None:
    path = tmp_path / "model"  # the name is taken as it is
    saved = NgramModel.count([[0, 1, 2, 1, 0, 3]], 6, order, name="mine", eos_token_ids=[3, 1])
    saved.save(path)
    loaded = NgramModel.load(path)
    assert (loaded.order, loaded.vocab_size, loaded.name, loaded.eos_token_ids) == (order, 6, "mine", {1, 3})
    assert loaded.tokenizer is None
    for context in ([], [1], [0, 1, 2], [5]):
        np.testing.assert_array_equal(loaded.logits_after(context), saved.logits_after(context))


def test_a_model_goes_with_its_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "words.npz"
    tokenizer = word_tokenizer(*WORDS)
    NgramModel.count([[1, 2]], 6, tokenizer=tokenizer).save(path)
    assert NgramModel.load(path, word_tokenizer(*WORDS)).tokenizer
    with pytest.raises(TokenizerMismatchError, match=r"words\.npz .* other"):
        NgramModel.load(path, word_tokenizer(*reversed(WORDS), name="other"))
    with pytest.raises(OptionError, match=r"words\.npz was counted with a tokenizer"):
        NgramModel.load(path)


class Intruder:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


def test_loading_unpickles_nothing(tmp_path: Path) -> None:
    np.savez(tmp_path / "pickled.npz", format=np.array([Intruder(tmp_path / "made")]))
    with pytest.raises(ModelError, match=r"pickled\.npz is not a whole n-gram model"):
        NgramModel.load(tmp_path / "pickled.npz")
    assert not (tmp_path / "made").exists()


def test_files_that_are_no_whole_model_are_named(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    NgramModel.count([[0, 1, 2]], 4).save(path)
    whole = path.read_bytes()
    np.savez(tmp_path / "foreign.npz", format=np.array("another"), order=np.array(1))
    np.savez(tmp_path / "lacking.npz", format=np.array("draftwise n-gram 1"), order=np.array(1))
    np.save(tmp_path / "array.npy", np.arange(3))
    broken = {
        "empty": b"",
        "text": b"the cat sat on the mat",
        "truncated": whole[: len(whole) // 2],
        "last-byte": whole[:-1],
        "flipped": bytes([*whole[:200], whole[200] ^ 1, *whole[201:]]),
        **{name: (tmp_path / name).read_bytes() for name in ("foreign.npz", "lacking.npz")},
        "array.npy": (tmp_path / "array.npy").read_bytes(),
    }
    for name, content in broken.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ModelError, match=f"{name} is not a whole n-gram model"):
            NgramModel.load(tmp_path / name)
    with pytest.raises(ModelError, match=r"none\.npz does not exist"):
        NgramModel.load(tmp_path / "none.npz")
    with pytest.raises(ModelError, match=r"cannot be written"):
        NgramModel.count([[0]], 4).save(tmp_path / "no" / "folder.npz")
