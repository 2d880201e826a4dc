"""What prompt lookup copies, how far, and that it reads each token once."""

from collections.abc import Iterator, Sequence
from typing import overload

import pytest

from draftwise.control.base import UpTo
from draftwise.drafters.draft_lengths import match_confidence
from draftwise.drafters.prompt_lookup import PromptLookup, PromptLookupState
from draftwise.errors import OptionError
from draftwise.randomness import Streams
from draftwise.sampling import Sampler, SamplingParams
from tests.drafters.cases import TARGET

STAIRCASE = ((1, 1), (2, 3), (4, 5), (6, 7), (10, 11))


def opened(drafter: PromptLookup | None = None) -> PromptLookupState:
    return (drafter or PromptLookup(STAIRCASE)).open(TARGET, 1, 10_000)


def propose(state: PromptLookupState, context: Sequence[int], limit: int = 100) -> tuple[int, ...]:
    draft = state.propose(
        [context], [UpTo(limit)], [Sampler(SamplingParams())], [Streams.seeded(0).drafting]
    )[0]
    assert draft.probs is None
    return draft.token_ids


@pytest.mark.parametrize(
    ("match_length", "draft_length"),
    [(1, 1), (2, 3), (3, 3), (4, 5), (5, 5), (6, 7), (9, 7), (10, 11), (60, 11)],
)
def test_draft_grows_with_the_match(match_length: int, draft_length: int) -> None:
    piece = list(range(100, 100 + match_length))
    following = list(range(500, 540))
    assert propose(opened(), [*piece, *following, 1, *piece]) == tuple(following[:draft_length])


def test_limit_caps_the_draft() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2]
    assert propose(opened(), text, limit=2) == (3, 4)
    assert propose(opened(), text, limit=3) == (3, 4, 5)


def test_nothing_seen_before_draws_no_draft() -> None:
    assert propose(opened(), [1]) == ()
    assert propose(opened(), [1, 2, 3]) == ()


def test_copy_follows_the_latest_of_the_longest() -> None:
    assert propose(opened(), [1, 2, 7, 7, 1, 2, 8, 8, 1, 2]) == (8, 8, 1)
    assert propose(opened(), [0, 1, 2, 7, 7, 9, 1, 2, 8, 8, 0, 1, 2]) == (7, 7, 9)


@pytest.mark.parametrize(("period", "expected"), [([5], [5] * 7), ([5, 6], [5, 6, 5, 6, 5, 6, 5])])
def test_copy_runs_on_into_itself(period: list[int], expected: list[int]) -> None:
    repeats = 8 // len(
        period
    )  # a match of 8 - len(period) tokens, 6 or 7: seven drafted, past the text's end
    assert propose(opened(), period * repeats) == tuple(expected)


def test_draft_lengths_are_the_callers() -> None:
    drafter = PromptLookup(draft_lengths=[(2, 4)])
    assert drafter.default_num_draft_tokens == 4
    assert propose(opened(drafter), [1, 2, 3, 4, 5, 9, 2]) == ()
    assert propose(opened(drafter), [1, 2, 3, 4, 5, 9, 1, 2]) == (3, 4, 5, 9)


class Told:
    """Allows a number of tokens, and remembers how likely each was said to be."""

    def __init__(self, num_draft_tokens: int) -> None:
        self.num_draft_tokens = num_draft_tokens
        self.confidences: list[float | None] = []

    def choose(self, confidences: Sequence[float | None]) -> int | None:
        raise AssertionError("there is one drafter")

    def allows(self, num_drafted: int, confidence: float | None = None, parent: int | None = None) -> bool:
        if confidence is not None:
            self.confidences.append(confidence)
        return num_drafted < self.num_draft_tokens


def told(context: Sequence[int], num_draft_tokens: int) -> list[float | None]:
    """How likely each token of a draft was said to be, and the first beyond it."""
    limit = Told(num_draft_tokens)
    state = opened(PromptLookup())
    [draft] = state.propose([context], [limit], [Sampler(SamplingParams())], [Streams.seeded(0).drafting])
    assert len(draft) == num_draft_tokens
    assert state.confidence(0, context) == limit.confidences[0]
    return limit.confidences


def test_a_token_is_likelier_after_a_longer_match() -> None:
    text = [1, 2, 3, 4, 5, 6, 7]
    assert told([*text, 1], 2) == [match_confidence(matched) for matched in (1, 2, 3)]
    assert told([*text, 1, 2, 3], 2) == [match_confidence(matched) for matched in (3, 4, 5)]


def test_a_token_is_likelier_the_more_earlier_occurrences_agree() -> None:
    """What followed 1, 2 was 3 twice and 9 once; of what followed 1, 2, 3 each time was another."""
    text = [1, 2, 9, 0, 1, 2, 3, 4, 0, 1, 2, 3, 5, 6, 7]
    assert told([*text, 1, 2], 2) == [
        match_confidence(2, 2, 1),
        match_confidence(3, 1, 1),
        match_confidence(4, 1, 0),
    ]
    assert match_confidence(2, 1, 1) < match_confidence(2, 2, 1) < match_confidence(2, 2, 0)


def test_a_copy_that_runs_on_into_itself_is_still_likely() -> None:
    confidences = told([5, 6] * 4, 12)
    assert all(confidence and confidence >= match_confidence(5) for confidence in confidences)


@pytest.mark.parametrize("draft_lengths", [[], [(0, 1)], [(1, 0)], [(2, 3), (1, 5)], [(2, 3), (2, 5)]])
def test_impossible_draft_lengths_are_refused(draft_lengths: list[tuple[int, int]]) -> None:
    with pytest.raises(OptionError, match="draft_lengths"):
        PromptLookup(draft_lengths)


class ReadOnce(Sequence[int]):
    """A context that remembers which positions were read."""

    def __init__(self, token_ids: list[int]) -> None:
        self.token_ids = token_ids
        self.read: list[int] = []

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        positions = range(len(self.token_ids))[index]
        self.read.extend([positions] if isinstance(positions, int) else positions)
        return self.token_ids[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self[:])

    def __len__(self) -> int:
        return len(self.token_ids)


def test_tokens_seen_are_not_read_again() -> None:
    state = opened()
    context = ReadOnce(list(range(2000)))
    propose(state, context)
    assert context.read == list(range(2000))
    context.read.clear()
    context.token_ids += [3, 4]
    assert propose(state, context) == (5, 6, 7)
    assert context.read == [2000, 2001, 5, 6, 7]


def test_a_row_without_a_limit_reads_nothing() -> None:
    context = ReadOnce([1, 2, 1])
    assert propose(opened(), context, limit=0) == ()
    assert context.read == []


def test_text_that_an_encoder_read_comes_before_the_context() -> None:
    source, context = (5, 1, 2, 3, 4, 5, 6), [0, 1, 2]
    state = opened()
    state.begin(0, source)
    assert propose(state, context) == propose(opened(), [*source, *context]) == (3, 4, 5)
    assert propose(state, [*context, 3, 9, 1, 2]) == (3, 9, 1)
    assert propose(state, [*context, 3, 9, 1, 2, 6]) == (0,)  # across the end of the source
    state.begin(0, None)
    assert propose(state, context) == ()
