"""What a draft model is fed, and when it cannot draft."""

from collections.abc import Sequence
from itertools import takewhile

import pytest
import tokenizers

from draftwise.control.base import Limit
from draftwise.drafters.base import DraftState
from draftwise.drafters.draft_model import DraftModel
from draftwise.errors import OptionError, TokenizerMismatchError
from draftwise.models.base import Tap
from draftwise.models.context import ContextState
from draftwise.models.tabular import TabularModel
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler, SamplingParams
from draftwise.tokenizer import Tokenizer
from draftwise.types import Draft, Logits
from tests.drafters.case import assert_same_draft
from tests.drafters.cases import TARGET
from tests.drafters.conformance import ask, ask_one
from tests.fakes import RowDrafter

GREEDY = SamplingParams()
SAMPLED = SamplingParams(temperature=1.0)


class RecordingModel(TabularModel):
    """Remembers what each pass was fed, and how its states were opened and closed."""

    def open(
        self, num_sequences: int, max_length: int, *, width_invariant: bool = True, taps: Sequence[Tap] = ()
    ) -> "RecordingState":
        self.opened_with = (num_sequences, max_length, width_invariant)
        self.feeds: list[list[list[int]]] = []
        self.closed = False
        return RecordingState(self, num_sequences, max_length)


class RecordingState(ContextState):
    def __init__(self, model: RecordingModel, num_sequences: int, max_length: int) -> None:
        super().__init__(model, num_sequences, max_length)
        self._recorder = model

    def forward(
        self,
        token_ids: Sequence[Sequence[int]],
        num_logits: Sequence[int],
        parents: Sequence[Sequence[int] | None] | None = None,
    ) -> list[Logits]:
        self._recorder.feeds.append([list(feed) for feed in token_ids])
        return super().forward(token_ids, num_logits, parents)

    def keep(self, row: int, length: int) -> None:
        assert length <= self.lengths[row]
        super().keep(row, length)

    def close(self) -> None:
        self._recorder.closed = True


@pytest.fixture
def model() -> RecordingModel:
    return RecordingModel(TabularModel.random(4, order=2, seed=2).table)


def fed(model: RecordingModel) -> list[list[list[int]]]:
    """What was fed since this was last asked."""
    feeds, model.feeds = model.feeds, []
    return feeds


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=str)
def test_only_what_is_new_is_fed(model: RecordingModel, sampling: SamplingParams) -> None:
    state = DraftModel(model).open(TARGET, 1, 100)
    assert model.opened_with == (1, 100, False)
    context = [0, 1, 2, 3]
    a, b, c = ask_one(state, context, 3, sampling).draft.token_ids
    assert fed(model) == [[[0, 1, 2, 3]], [[a]], [[b]]]

    context += [a, b, c, 2]  # all accepted, and a bonus token: the last token drafted was not fed
    d, e, f = ask_one(state, context, 3, sampling).draft.token_ids
    assert fed(model) == [[[c, 2]], [[d]], [[e]]]

    context += [d, (e + 1) % 4]  # the second is rejected
    g, _h = ask_one(state, context, 2, sampling).draft.token_ids
    assert fed(model) == [[[(e + 1) % 4]], [[g]]]

    context += [(g + 1) % 4]  # the first is rejected
    assert not ask_one(state, context, 0, sampling).draft
    assert fed(model) == []
    context += [1, 2]
    (i,) = ask_one(state, context, 1, sampling).draft.token_ids
    assert fed(model) == [[[(g + 1) % 4, 1, 2]]]

    (j,) = ask_one(state, context, 1, sampling).draft.token_ids  # the same context again
    assert i == j
    assert fed(model) == [[[2]]]
    assert f in range(4)


def test_rows_share_each_pass(model: RecordingModel) -> None:
    state = DraftModel(model).open(TARGET, 4, 100)
    contexts = [[0], [1, 2], [3], [2, 2]]
    asked = ask(state, contexts, [3, 1, 0, 2], [GREEDY, SAMPLED, GREEDY, SAMPLED], [0, 1, 2, 3])
    first, second, third, fourth = (one.draft.token_ids for one in asked)
    assert fed(model) == [
        [[0], [1, 2], [], [2, 2]],
        [[first[0]], [], [], [fourth[0]]],
        [[first[1]], [], [], []],
    ]
    assert (len(first), len(second), len(third), len(fourth)) == (3, 1, 0, 2)
    assert [one.draft.probs is None for one in asked] == [True, False, True, False]


class Guess(RowDrafter):
    """Guesses these tokens, whatever comes before."""

    default_num_draft_tokens = 9

    def __init__(self, *token_ids: int, parents: tuple[int, ...] | None = None) -> None:
        self.token_ids = token_ids
        self.parents = parents

    def draft(self, context: Sequence[int], limit: Limit, sampler: Sampler, randomness: Randomness) -> Draft:
        count = sum(1 for _ in takewhile(limit.allows, range(9)))
        return Draft(self.token_ids[:count], None, self.parents and self.parents[:count])


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=str)
def test_a_guessed_draft_takes_fewer_passes(model: RecordingModel, sampling: SamplingParams) -> None:
    context = [0, 1, 2, 3]
    alone = ask_one(DraftModel(model).open(TARGET, 1, 100), context, 4, sampling).draft
    a, b, c, d = alone.token_ids
    for guess, feeds in [
        ((a, b, c, d), [[[*context, a, b, c]]]),  # the last token of a draft is not fed
        ((a, b, (c + 1) % 4), [[[*context, a, b, (c + 1) % 4]], [[c]]]),
        (((a + 1) % 4, b), [[[*context, (a + 1) % 4, b]], [[a]], [[b]], [[c]]]),
        ((a, 4, 5), [[[*context, a]], [[b]], [[c]]]),  # tokens that the model lacks
        ((), [[context], [[a]], [[b]], [[c]]]),
    ]:
        state = DraftModel(model, drafter=Guess(*guess)).open(TARGET, 1, 100)
        fed(model)
        assert_same_draft(ask_one(state, context, 4, sampling).draft, alone)
        assert fed(model) == [[feed] if isinstance(feed[0], int) else feed for feed in feeds]
        # What the guess left in the cache does not matter for what comes next.
        for longer in ([*context, a, b, (c + 1) % 4], [*context, a, b, (c + 1) % 4, 1, 2, 0]):
            again = ask_one(DraftModel(model).open(TARGET, 1, 100), longer, 3, sampling, seed=1).draft
            assert_same_draft(ask_one(state, longer, 3, sampling, seed=1).draft, again)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=str)
def test_a_guessed_tree_is_read_as_a_tree(model: RecordingModel, sampling: SamplingParams) -> None:
    context = [0, 1, 2, 3]
    alone = ask_one(DraftModel(model).open(TARGET, 1, 100), context, 4, sampling).draft
    a, b, c, _ = alone.token_ids
    other = (a + 1) % 4
    for tokens, parents, feeds in [
        ((other, a, b), (-1, -1, 1), [[*context, other, a, b], [c]]),  # the second branch was right
        ((a, other, b), (-1, -1, 0), [[*context, a, other, b], [c]]),
        ((other, a, b), (-1, -1, 0), [[*context, other, a, b], [b], [c]]),  # right after another token
        ((4, a, b), (-1, -1, 0), [[*context, a], [b], [c]]),  # a token that the model lacks, and its child
    ]:
        state = DraftModel(model, drafter=Guess(*tokens, parents=parents)).open(TARGET, 1, 100)
        fed(model)
        assert_same_draft(ask_one(state, context, 4, sampling).draft, alone)
        assert fed(model) == [[feed] for feed in feeds]
        longer = [*context, a, b, (c + 1) % 4]
        again = ask_one(DraftModel(model).open(TARGET, 1, 100), longer, 3, sampling, seed=1).draft
        assert_same_draft(ask_one(state, longer, 3, sampling, seed=1).draft, again)


def test_the_drafter_of_a_draft_model_is_opened_for_it_and_closed() -> None:
    inner, outer = (RecordingModel(TabularModel.random(4, order=2, seed=2).table) for _ in range(2))
    drafter = DraftModel(outer, "outer", drafter=DraftModel(inner, "inner"))
    state = drafter.open(TARGET, 3, 50)
    assert inner.opened_with == outer.opened_with == (3, 50, False)
    state.close()
    assert inner.closed
    assert outer.closed
    assert DraftModel(TARGET, drafter=DraftModel(inner, "inner")).name == f"{TARGET.name} < inner"


def test_drafts_shrink_to_what_the_draft_model_holds() -> None:
    small = RecordingModel(TabularModel.random(4, order=2, seed=2).table, max_length=6)
    state = DraftModel(small).open(TARGET, 2, 100)
    assert small.opened_with[1] == 6
    for length, most in [(3, 4), (5, 2), (6, 1), (7, 0), (9, 0)]:
        short, long = ask(state, [[1], [0] * length], [5, 5], [SAMPLED] * 2, [0, 1])
        assert len(short.draft) == 5
        assert len(long.draft) == most


def test_padding_that_the_draft_model_lacks_is_read_as_its_last_token(model: RecordingModel) -> None:
    wide = TabularModel.random(9, seed=5)
    state = DraftModel(model).open(wide, 1, 100)
    first = ask_one(state, [1, 8, 2], 2, SAMPLED).draft
    assert fed(model)[0] == [[1, 3, 2]]
    assert_same_draft(first, ask_one(DraftModel(model).open(wide, 1, 100), [1, 3, 2], 2, SAMPLED).draft)


def test_closing_closes_the_cache(model: RecordingModel) -> None:
    DraftModel(model).open(TARGET, 1, 10).close()
    assert model.closed


def test_names_and_lengths() -> None:
    assert DraftModel(TARGET).name == TARGET.name
    assert DraftModel(TARGET, "small").name == "small"
    assert DraftModel(TARGET).default_num_draft_tokens == 4
    assert DraftModel(TARGET, num_draft_tokens=7).default_num_draft_tokens == 7
    with pytest.raises(OptionError, match="num_draft_tokens"):
        DraftModel(TARGET, num_draft_tokens=0)


def tokenizer(*tokens: str) -> Tokenizer:
    words = tokenizers.models.WordLevel(
        {token: index for index, token in enumerate(tokens)}, unk_token=tokens[0]
    )
    return Tokenizer(tokenizers.Tokenizer(words), name=tokens[1])


def open_pair(target_tokenizer: Tokenizer | None, draft_tokenizer: Tokenizer | None) -> DraftState:
    target = TabularModel.random(4, name="big", tokenizer=target_tokenizer)
    draft = TabularModel.random(4, name="little", tokenizer=draft_tokenizer)
    return DraftModel(draft).open(target, 1, 10)


def test_another_tokenizer_is_refused() -> None:
    with pytest.raises(TokenizerMismatchError, match=r"little cannot draft for big.*'cat'.*'dog'.*; take"):
        open_pair(tokenizer("?", "the", "cat"), tokenizer("?", "the", "dog"))


@pytest.mark.parametrize(
    ("target_tokenizer", "draft_tokenizer"),
    [
        (tokenizer("?", "the", "cat"), tokenizer("?", "the", "cat")),
        (tokenizer("?", "the", "cat"), tokenizer("?", "the")),  # shorter: the rest is padding
        (tokenizer("?", "the", "cat"), None),
        (None, tokenizer("?", "the", "cat")),
    ],
)
def test_one_tokenizer_is_taken(
    target_tokenizer: Tokenizer | None, draft_tokenizer: Tokenizer | None
) -> None:
    assert ask_one(open_pair(target_tokenizer, draft_tokenizer), [1], 2, GREEDY).draft
