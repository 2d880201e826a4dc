"""What is copied from the input, and how the output finds its place in it again."""

import pytest

from draftwise.control.base import UpTo
from draftwise.drafters.draft_lengths import match_confidence
from draftwise.drafters.input_copy import InputCopy, InputCopyState
from draftwise.models.tabular import TabularModel
from draftwise.randomness import Streams
from draftwise.sampling import Sampler, SamplingParams

TARGET = TabularModel.random(1000, order=1, seed=0)
SOURCE = list(range(100, 160))


def opened(source: list[int] | None = None, prompt: list[int] | None = None) -> InputCopyState:
    state = InputCopy(source, draft_lengths=[(1, 2), (2, 4), (4, 7), (8, 11), (16, 15)]).open(
        TARGET, 1, 10_000
    )
    if prompt is not None:
        propose(state, prompt, 0)
    return state


def propose(state: InputCopyState, context: list[int], limit: int = 100) -> tuple[int, ...]:
    return state.propose([context], [UpTo(limit)], [Sampler(SamplingParams())], [Streams.seeded(0).drafting])[
        0
    ].token_ids


def test_a_source_is_copied_from_its_beginning() -> None:
    state = opened(SOURCE)
    assert propose(state, [1]) == (100, 101)
    assert propose(state, [1, 100, 101, 102]) == tuple(range(103, 110))  # a longer draft after a longer copy
    assert propose(state, [1, 100, 101, 102], limit=1) == (103,)


def test_a_prompt_is_copied_once_the_output_joins_it() -> None:
    prompt = [1, 2, *SOURCE, 3]
    state = opened(prompt=prompt)
    assert propose(state, prompt) == ()
    assert state.confidence(0, prompt) == 0
    assert propose(state, [*prompt, 100]) == (101, 102)
    assert state.confidence(0, [*prompt, 100]) == match_confidence(1)
    assert propose(state, [*prompt, 100, 101]) == (102, 103, 104, 105)


@pytest.mark.parametrize(
    ("written", "following"),
    [
        ([*range(100, 120), 7, 8, 120], 121),  # an insertion
        ([*range(100, 120), 125], 126),  # a deletion
        ([*range(100, 120), 7, 121], 122),  # a change
        ([*range(100, 120), 110], 111),  # a step back
    ],
)
def test_the_place_is_found_again(written: list[int], following: int) -> None:
    assert propose(opened(SOURCE, [1]), [1, *written])[0] == following


def test_no_guess_while_the_place_is_lost() -> None:
    assert propose(opened(SOURCE, [1]), [1, 100, 101, 7]) == ()


def test_the_first_unique_ngram_decides() -> None:
    source = [5, 1, 2, 3, 10, 5, 4, 2, 3, 20, 5, 4, 6, 3, 30]
    state = opened(source, [0])
    assert propose(state, [0, 9, 6, 3], 1) == (30,)  # 3 is there three times, 6 3 once
    assert propose(opened(source, [0]), [0, 9, 1, 2, 3], 1) == (10,)
    assert propose(opened(source, [0]), [0, 9, 4, 2, 3], 1) == (20,)


def test_of_several_places_the_next_is_taken() -> None:
    source = [1, 2, 50, 3, 1, 2, 60, 4, 1, 2, 70]
    assert propose(opened(source, [0]), [0, 1, 2, 50, 3, 9, 1, 2], 1) == (60,)
    assert propose(opened(source, [0]), [0, 1, 2, 50, 3, 1, 2, 60, 4, 9, 1, 2], 1) == (70,)
    assert propose(opened(source, [0]), [0, 70, 9, 1, 2], 1) == (70,)  # none comes next: the last one


def test_the_end_of_the_input_and_of_the_vocabulary() -> None:
    assert propose(opened(SOURCE, [1]), [1, 158]) == (159,)
    assert propose(opened(SOURCE, [1]), [1, 159]) == ()
    assert propose(opened([1, 2, 3, 1000, 4], [1]), [1, 1, 2]) == (3,)


def test_what_an_encoder_read_is_the_input() -> None:
    state = opened()
    state.begin(0, tuple(SOURCE))
    assert propose(state, [1]) == (100, 101)
    assert propose(state, [1, 100, 101, 102]) == tuple(range(103, 110))
    given = opened([7, 8, 9])
    given.begin(0, tuple(SOURCE))
    assert propose(given, [1]) == (7, 8)
