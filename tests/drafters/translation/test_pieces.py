"""Text in one vocabulary, by the tokens of another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwise.drafters.translation.pieces import Pieces, Translation
from draftwise.errors import TokenizerMismatchError
from draftwise.models.tabular import TabularModel
from draftwise.tokenizer import Tokenizer
from tests.fakes import byte_pairs
from tests.test_tokenizer import byte_fallback, byte_level, unigram


def pieces(tokenizer: Tokenizer) -> Pieces:
    return Pieces(tokenizer, tokenizer.vocab_size, tokenizer.spellings)


LETTERS = pieces(byte_pairs("a", "b", "ab", "aba", "Ġ", "Ã", "©"))
BYTES = pieces(Tokenizer(byte_level(), name="byte-level"))
FALLBACK = pieces(Tokenizer(byte_fallback(), name="byte-fallback"))
UNIGRAM = pieces(Tokenizer(unigram(), name="unigram"))


@pytest.mark.parametrize(
    ("text", "token_ids"),
    [(b"abab", [3, 1]), (b"a\xc3\xa9b", [0, 5, 6, 1]), (b"\xa9ab", [6, 2]), (b"azb", [0, 1]), (b"", [])],
)
def test_tiles_are_the_longest_that_fit(text: bytes, token_ids: list[int]) -> None:
    assert LETTERS.tile(text) == token_ids


@given(st.binary(max_size=12))
def test_every_byte_is_spelled_where_the_vocabulary_can(text: bytes) -> None:
    for each in (BYTES, FALLBACK):
        assert each.text(each.tile(text)) == text


@given(st.text(max_size=8), st.text(max_size=12))
def test_encoding_after_another_text_spells_the_text_alone(before: str, text: str) -> None:
    for each in (BYTES, FALLBACK):
        spelled = each.text(each.encode(before.encode(), text.encode()))
        assert spelled in ((text.encode(),) if before else (text.encode(), b" " + text.encode()))


def test_tokens_are_those_of_the_whole_where_it_has_a_line_there() -> None:
    tokenizer = Tokenizer(byte_level(), name="byte-level")
    whole = tokenizer.encode("the target verifies", add_special_tokens=False)
    after = BYTES.encode(b"the target", b" verifies")
    assert len(after) < len(" verifies")
    assert whole[-len(after) :] == after
    assert LETTERS.encode(b"a", b"b") == [1]  # the whole is one token


@pytest.mark.parametrize("each", [FALLBACK, UNIGRAM], ids=["byte-fallback", "unigram"])
def test_no_space_is_put_amid_a_text(each: Pieces) -> None:
    assert each.text(each.encode(b"", b"over")) == b" over"
    assert each.text(each.encode(b"the dog", b" over")) == b" over"
    assert each.text(each.encode(b"the do", b"g over")) == b"g over"


def test_a_part_of_a_character_is_spelled_in_bytes() -> None:
    smile = "😀".encode()
    for each in (BYTES, FALLBACK):
        assert each.text(each.encode(b"a ", smile[:2])) == smile[:2]
        assert each.text(each.encode(b"a " + smile[:2], smile[2:])) == smile[2:]


def model(tokenizer: Tokenizer | None) -> TabularModel:
    size = tokenizer.vocab_size if tokenizer else 4
    ends = tokenizer.eos_token_ids if tokenizer else ()
    return TabularModel.random(size, tokenizer=tokenizer, eos_token_ids=ends)


def test_the_ends_of_a_text_are_one_whatever_they_are_called() -> None:
    target, draft = byte_pairs("a", "b", eos="</s>"), byte_pairs("b", "a", eos="<eos>")
    translation = Translation.between(model(target), model(draft))
    assert translation.draft.text([2]) == translation.target.text([2]) == b"</s>"


def test_what_begins_a_text_is_not_translated() -> None:
    translation = Translation.between(
        model(Tokenizer(unigram(), name="unigram")), model(Tokenizer(byte_level(), name="byte-level"))
    )
    assert translation.target.text([1]) == b""
    assert translation.leading_ids == []


def test_room_is_made_for_finer_tokens() -> None:
    coarse, fine = byte_pairs("abababab", "babababa"), byte_pairs("a", "b")
    assert Translation.between(model(coarse), model(fine)).capacity(10) == 160
    assert Translation.between(model(fine), model(coarse)).capacity(10) == 20


@pytest.mark.parametrize(("target", "draft"), [(None, byte_pairs("a")), (byte_pairs("a"), None)])
def test_without_a_tokenizer_there_is_no_translation(
    target: Tokenizer | None, draft: Tokenizer | None
) -> None:
    with pytest.raises(TokenizerMismatchError, match="has no tokenizer"):
        Translation.between(model(target), model(draft))
