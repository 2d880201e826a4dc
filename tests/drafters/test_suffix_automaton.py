"""The online index against a search through the whole text."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwise.drafters.suffix_automaton import SuffixAutomaton


def longest_earlier_suffix(text: list[int]) -> int:
    """Length of the longest end of `text` that also ends before its last position, by trying every one."""
    return next(
        length
        for length in range(len(text) - 1, -1, -1)
        if any(
            text[start : start + length] == text[len(text) - length :] for start in range(len(text) - length)
        )
    )


def latest_earlier_end(text: list[int], length: int) -> int:
    return next(
        end for end in range(len(text) - 1, -1, -1) if text[end - length : end] == text[len(text) - length :]
    )


def texts(num_tokens: int) -> st.SearchStrategy[list[int]]:
    """Texts over `num_tokens` tokens, half of them made of repeated pieces so that long matches happen."""
    token_ids = st.integers(0, num_tokens - 1)
    pieces = st.lists(st.lists(token_ids, min_size=1, max_size=6), min_size=1, max_size=4)
    repeated = st.tuples(pieces, st.lists(st.integers(0, 3), max_size=10)).map(
        lambda made: [token_id for at in made[1] for token_id in made[0][at % len(made[0])]]
    )
    return st.one_of(st.lists(token_ids, max_size=40), repeated)


@settings(max_examples=400, deadline=None)
@given(st.integers(1, 4).flatmap(texts))
def test_match_is_the_longest_and_its_position_true(text: list[int]) -> None:
    index = SuffixAutomaton()
    for size, token_id in enumerate(text, start=1):
        index.append(token_id)
        seen = text[:size]
        length, end = index.match_length, index.match_end
        assert len(index) == size
        assert length == longest_earlier_suffix(seen)
        if length:
            assert length <= end < size
            assert seen[end - length : end] == seen[size - length :]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=40))
def test_position_is_the_latest_while_few_suffixes_recur(text: list[int]) -> None:
    # Shorter texts than the bound on refreshed suffixes have no stale positions at all.
    index = SuffixAutomaton()
    for size, token_id in enumerate(text[:17], start=1):
        index.append(token_id)
        if index.match_length:
            assert index.match_end == latest_earlier_end(text[:size], index.match_length)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=2, max_size=17), st.integers(0, 2))
def test_what_a_place_went_on_with_is_counted(text: list[int], token_id: int) -> None:
    """As short a text has no stale counts."""
    index = SuffixAutomaton()
    for each in text:
        index.append(each)
    length = index.match_length
    following = [
        text[start + length]
        for start in range(len(text) - length)
        if text[start : start + length] == text[len(text) - length :]
    ]
    num_alike = following.count(token_id)
    assert index.went_on(index.match, token_id) == (num_alike, len(following) - num_alike)


def test_of_a_texts_own_end_the_longest_shorter_end_that_went_on_counts() -> None:
    index = SuffixAutomaton()
    for token_id in [1, 2, 3, 1, 2]:
        index.append(token_id)
    whole = index.root
    for token_id in [1, 2, 3, 1, 2]:
        whole = index.follow(whole, token_id)
    assert whole[1] == 5
    assert index.went_on(whole, 3) == (1, 0)
    assert index.went_on(whole, 4) == (0, 1)


def test_position_follows_the_latest_repetition() -> None:
    index = SuffixAutomaton()
    for token_id in [1, 2, 3, 9, 1, 2, 4, 9, 1, 2]:
        index.append(token_id)
    assert index.match_length == 3
    assert index.match_end == 6
    index.append(4)
    assert index.match_length == 4
    assert index.match_end == 7


def test_empty_text_has_no_match() -> None:
    index = SuffixAutomaton()
    assert (len(index), index.match_length) == (0, 0)
    index.append(7)
    assert (len(index), index.match_length) == (1, 0)


class CountingAutomaton(SuffixAutomaton):
    """Counts the transitions it looks at."""

    num_looked_at = 0

    def _follow(self, state: int, token_id: int) -> int:
        self.num_looked_at += 1
        return super()._follow(state, token_id)


@pytest.mark.parametrize("period", [1, 2, 7, 1000])
def test_work_is_linear(period: int) -> None:
    """However long the text, an append looks at a handful of transitions on average."""
    index = CountingAutomaton()
    for position in range(6000):
        index.append(position % period if position % 3000 < 2990 else 5000 + position % 3)
    assert index.num_looked_at < 8 * 6000


@pytest.mark.parametrize("period", [1, 2, 1000])
def test_size_is_linear(period: int) -> None:
    """An index of 6000 tokens takes less than 400 bytes for each."""
    tracemalloc.start()
    index = SuffixAutomaton()
    for position in range(6000):
        index.append(position % period if position % 7 else position * position % 11)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 400 * 6000


def test_a_place_stays_right_while_the_text_grows() -> None:
    """A place found where 2 had only ever come after 1; later it comes after something else too."""
    index = SuffixAutomaton()
    for token_id in [1, 2, 3]:
        index.append(token_id)
    place = index.follow(index.root, 2)
    assert {token_id for _, _, token_id in index.following(place)} == {3}
    for token_id in [9, 2, 5]:
        index.append(token_id)
    assert {token_id for _, _, token_id in index.following(place)} == {3, 5}
    assert index.follow(place, 5)[1] == 2
