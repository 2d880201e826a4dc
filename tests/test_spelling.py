"""The bytes of tokens against what each family of tokenizers decodes."""

from collections.abc import Callable

import pytest
import tokenizers

from draftwise.tokenizer import Tokenizer
from tests.test_tokenizer import FAMILIES, TEXTS, byte_fallback, byte_level, unigram, word_piece


def spell(tokenizer: Tokenizer, text: str) -> bytes:
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    return b"".join(tokenizer.spellings[token_id] for token_id in token_ids)


@pytest.mark.parametrize("text", TEXTS)
def test_byte_level_tokens_spell_any_text(text: str) -> None:
    assert spell(Tokenizer(byte_level(), name="byte-level"), text) == text.encode()


@pytest.mark.parametrize("text", [text for text in TEXTS if "<" not in text])
def test_fallback_bytes_spell_what_no_token_does(text: str) -> None:
    assert spell(Tokenizer(byte_fallback(), name="byte-fallback"), text) == f" {text}".encode()


@pytest.mark.parametrize("family", [unigram, word_piece], ids=lambda family: family.__name__)
def test_tokens_spell_what_is_decoded(family: Callable[[], tokenizers.Tokenizer]) -> None:
    tokenizer = Tokenizer(family(), name="words")
    text = "the quick brown fox jumps over a lazy dog"
    assert spell(tokenizer, text) == f" {text}".encode()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_special_tokens_spell_their_names(family: Callable[[], tokenizers.Tokenizer]) -> None:
    tokenizer = Tokenizer(family(), name="words")
    assert tokenizer.spellings[1] == b"<s>"
    assert tokenizer.spellings.keys() == tokenizer.vocabulary.keys()


def test_what_is_put_before_every_text() -> None:
    assert Tokenizer(unigram(), name="unigram").leading_ids == [1]
    assert Tokenizer(byte_level(), name="byte-level").leading_ids == []
