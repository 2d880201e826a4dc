from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwise.errors import OptionError
from draftwise.randomness import Streams
from draftwise.sampling import Sampler, SamplingParams
from draftwise.sequence import Sequence, StopConditions
from draftwise.tokenizer import Tokenizer
from draftwise.types import FinishReason
from tests.fakes import PieceTokenizer

# Tokens of one letter, of several, and the two bytes of "é".
TOKENIZER = PieceTokenizer([b"a", b"b", b"c", b"ab", b"bca", b"\xc3", b"\xa9"])
A, B, C, AB, BCA, E_FIRST, E_SECOND = range(7)


def sequence(
    *stop_strings: str,
    max_new_tokens: int = 100,
    eos: Iterable[int] = (),
    stop: Iterable[int] = (),
    tokenizer: Tokenizer | None = TOKENIZER,
) -> Sequence:
    conditions = StopConditions(max_new_tokens, frozenset(eos), frozenset(stop), stop_strings)
    return Sequence([A, A], conditions, Sampler(SamplingParams()), Streams.seeded(0), tokenizer)


def test_text_is_given_out_as_its_tokens_come() -> None:
    row = sequence()
    assert row.extend([A, BCA]) == ("a", "bca")
    assert row.extend([C]) == ("c",)
    assert row.token_ids == [A, A, A, BCA, C]
    assert row.finish_reason is None


def test_an_unfinished_character_waits_for_its_last_byte() -> None:
    row = sequence()
    assert row.extend([E_FIRST, E_SECOND, E_FIRST]) == ("", "é", "")


@pytest.mark.parametrize("position", range(4))
@pytest.mark.parametrize(
    ("reason", "ending"), [(FinishReason.EOS, {"eos": [C]}), (FinishReason.STOP_TOKEN, {"stop": [C]})]
)
def test_a_token_ends_the_sequence_anywhere_in_a_draft(
    position: int, reason: FinishReason, ending: dict[str, list[int]]
) -> None:
    row = sequence(**ending)  # type: ignore[arg-type]
    emitted = [A, B, A, B]
    emitted[position] = C
    pieces = row.extend(emitted)
    assert row.finish_reason == reason
    assert row.token_ids == [A, A, *emitted[: position + 1]]
    assert "".join(pieces) == "abab"[:position]
    assert len(pieces) == position + 1


@pytest.mark.parametrize("budget", range(1, 5))
def test_the_budget_ends_the_sequence_anywhere_in_a_draft(budget: int) -> None:
    row = sequence(max_new_tokens=budget)
    assert row.budget == budget
    assert row.extend([A, B, C, A]) == ("a", "b", "c", "a")[:budget]
    assert row.finish_reason == FinishReason.LENGTH
    assert row.budget == 0


def test_what_ends_the_sequence_in_its_last_token_is_the_reason() -> None:
    for row, reason in [
        (sequence(max_new_tokens=1, eos=[C], stop=[C]), FinishReason.EOS),
        (sequence(max_new_tokens=1, stop=[C]), FinishReason.STOP_TOKEN),
        (sequence("c", max_new_tokens=1), FinishReason.STOP_STRING),
        (sequence(max_new_tokens=1), FinishReason.LENGTH),
    ]:
        row.extend([C])
        assert row.finish_reason == reason


def test_a_stop_string_across_tokens_is_never_given_out() -> None:
    row = sequence("bcab")
    assert row.extend([A, BCA]) == ("a", "")
    assert row.extend([B, C, C]) == ("",)
    assert row.finish_reason == FinishReason.STOP_STRING
    assert row.token_ids == [A, A, A, BCA, B]


def test_a_stop_string_inside_a_token_leaves_what_is_before_it() -> None:
    row = sequence("ca")
    assert row.extend([A, BCA, C]) == ("a", "b")
    assert row.finish_reason == FinishReason.STOP_STRING


def test_text_that_was_held_back_is_given_out_when_it_turns_out_harmless() -> None:
    row = sequence("abcc")
    assert row.extend([A, B, C]) == ("", "", "")
    assert row.extend([AB]) == ("abc",)
    assert row.extend([B]) == ("abb",)


def test_the_earliest_stop_string_counts() -> None:
    row = sequence("ca", "bc")
    assert row.extend([A, BCA]) == ("a", "")


@pytest.mark.parametrize(
    ("row", "last", "text"),
    [
        (sequence("abcc", eos=[C]), C, "ab"),
        (sequence("abcc", stop=[C]), C, "ab"),
        (sequence("abcc", max_new_tokens=2), B, "ab"),
        (sequence(max_new_tokens=2), E_FIRST, "a\ufffd"),
    ],
    ids=["eos", "stop token", "budget", "unfinished character"],
)
def test_nothing_is_held_back_at_the_end(row: Sequence, last: int, text: str) -> None:
    pieces = row.extend([A, last] if row.stop.max_new_tokens == 2 else [A, B, last])
    assert row.finish_reason
    assert "".join(pieces) == text


@given(
    st.lists(st.sampled_from([A, B, C, AB, BCA]), min_size=1, max_size=30),
    st.lists(st.text("abc", min_size=1, max_size=5), max_size=3),
    st.integers(1, 40),
    st.lists(st.integers(1, 6), min_size=30, max_size=30),
)
def test_text_is_what_stands_before_the_first_stop_string(
    tokens: list[int], stop_strings: list[str], budget: int, cuts: list[int]
) -> None:
    """However the tokens are cut into drafts; and as soon as a stop string is complete, the sequence ends."""
    row = sequence(*stop_strings, max_new_tokens=budget)
    text, rest = "", tokens
    for cut in cuts:
        if row.finish_reason or not rest:
            break
        pieces = row.extend(rest[:cut])
        text, rest = text + "".join(pieces), rest[cut:]
    emitted = row.token_ids[2:]
    assert emitted == tokens[: len(emitted)]
    whole = TOKENIZER.decode(emitted)
    ends = [whole.find(string) for string in stop_strings if string in whole]
    if ends:
        assert row.finish_reason == FinishReason.STOP_STRING
        assert text == whole[: min(ends)]
        assert not any(string in TOKENIZER.decode(emitted[:-1]) for string in stop_strings)
    elif row.finish_reason:
        assert (row.finish_reason, len(emitted), text) == (FinishReason.LENGTH, budget, whole)
    else:
        held_back = whole[len(text) :]
        assert text + held_back == whole
        assert len(emitted) == len(tokens)
        assert not held_back or any(string.startswith(held_back) for string in stop_strings)


def test_without_a_tokenizer_there_is_no_text() -> None:
    row = sequence(max_new_tokens=2, tokenizer=None)
    assert row.extend([A, B, C]) == ("", "")
    assert row.finish_reason == FinishReason.LENGTH


def test_impossible_conditions_are_refused() -> None:
    with pytest.raises(OptionError, match="max_new_tokens is 0; give at least 1"):
        sequence(max_new_tokens=0)
    with pytest.raises(OptionError, match="a stop string is empty"):
        sequence("ab", "")
    with pytest.raises(OptionError, match="stop strings need a tokenizer"):
        sequence("ab", tokenizer=None)
