"""What the suffix drafter follows: how often, how far, and from the corpus."""

from pathlib import Path

import numpy as np
import pytest
import tokenizers

from draftwise.control.base import UpTo
from draftwise.decoding import generate
from draftwise.drafters.base import DraftState
from draftwise.drafters.corpus import Corpus
from draftwise.drafters.draft_lengths import match_confidence
from draftwise.drafters.recycling import TokenRecycling
from draftwise.drafters.suffix import Suffix
from draftwise.errors import ModelError, OptionError, TokenizerMismatchError, UnsupportedError
from draftwise.models.tabular import TabularModel
from draftwise.randomness import Streams
from draftwise.sampling import Sampler, SamplingParams
from draftwise.tokenizer import Tokenizer

TARGET = TabularModel.random(600, order=1, seed=0)


def opened(*outputs: list[int], max_tokens: int = 1000, learn: bool = False) -> DraftState:
    corpus = Corpus.of(outputs, max_tokens) if outputs else None
    return Suffix(corpus, learn=learn, draft_lengths=[(1, 1), (2, 3), (4, 5), (6, 7), (10, 11)]).open(
        TARGET, 1, 10_000
    )


def propose(state: DraftState, context: list[int], limit: int = 100) -> tuple[int, ...]:
    draft = state.propose(
        [context], [UpTo(limit)], [Sampler(SamplingParams())], [Streams.seeded(0).drafting]
    )[0]
    assert draft.probs is None
    return draft.token_ids


def test_the_most_frequent_continuation_is_followed() -> None:
    text = [1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 4, 7, 1, 2]
    assert propose(opened(), text) == (3, 8, 1)  # 3 came twice after 1 2, 4 once and last; then 8 came last
    assert propose(opened(), text, limit=1) == (3,)


def test_the_latest_of_equally_frequent_ones_is_followed() -> None:
    assert propose(opened(), [1, 2, 3, 0, 1, 2, 4, 5, 1, 2]) == (4, 5, 1)


@pytest.mark.parametrize("period", [[5], [5, 6], [5, 6, 7]])
def test_a_copy_runs_on_into_itself(period: list[int]) -> None:
    assert propose(opened(), period * 12) == tuple((period * 12)[:11])


def test_what_was_followed_by_anything_is_no_guess() -> None:
    def varied(count: int) -> list[int]:
        return [token_id for number in range(count) for token_id in (7, 100 + number)]

    assert propose(opened(), [*varied(60), 7]) == (159,)  # each once: the latest
    assert propose(opened(), [*varied(80), 7]) == ()


def test_confidence_is_that_of_the_first_guess() -> None:
    state = opened()
    assert state.confidence(0, [1, 2, 3, 1, 2, 3, 1, 2, 4, 1, 2]) == match_confidence(2, 2, 1)
    assert opened().confidence(0, [1, 2, 3]) == 0


def test_the_longer_match_wins_wherever_it_is() -> None:
    state = opened([50, 1, 2, 30, 31, 32, 33])
    assert propose(state, [9, 2, 40, 41, 1, 2]) == (30, 31, 32)  # two tokens in the corpus, one in the text
    state = opened([50, 1, 2, 30, 31, 32, 33])
    assert propose(state, [1, 2, 40, 41, 1, 2]) == (40, 41, 1)  # two in both: the text's own comes first


def test_outputs_do_not_run_into_one_another() -> None:
    state = opened([1, 2, 3], [4, 5, 6])
    assert propose(state, [1, 2, 3]) == ()
    assert propose(state, [1, 2, 3, 0, 1, 2]) == (3, 0, 1)


def test_places_stay_right_while_the_corpus_grows() -> None:
    """A place held by a row may be in a state that is split later."""
    drafter = Suffix(Corpus(1000), learn=False)
    generator = np.random.default_rng(0)
    state = drafter.open(TARGET, 1, 10_000)
    context: list[int] = []
    for _ in range(60):
        drafter.corpus.add(generator.integers(3, size=int(generator.integers(1, 9))).tolist())
        context += generator.integers(3, size=2).tolist()
        new = drafter.open(TARGET, 1, 10_000)
        assert propose(state, context) == propose(new, context)


def test_a_finished_output_is_learnt() -> None:
    drafter = Suffix(Corpus(1000))
    first = generate(TARGET, [7], drafter=drafter, num_draft_tokens=None, max_new_tokens=12)
    assert drafter.corpus.outputs == [first.token_ids]
    second = generate(TARGET, [7], drafter=drafter, num_draft_tokens=None, max_new_tokens=12)
    assert second.token_ids == first.token_ids
    assert second.target_passes < first.target_passes
    generate(
        TARGET, [7], drafter=Suffix(drafter.corpus, learn=False), num_draft_tokens=None, max_new_tokens=12
    )
    assert len(drafter.corpus.outputs) == 2
    assert not Suffix().learn


def test_a_corpus_forgets_the_oldest() -> None:
    corpus = Corpus(40)
    for number in range(30):
        corpus.add([number] * 4)
        assert len(corpus) <= 40
    kept = [output[0] for output in corpus.outputs]
    assert kept == list(range(kept[0], 30))
    assert len(kept) >= 5
    corpus.add(list(range(100)))
    assert corpus.outputs[-1] == tuple(range(91, 100))
    assert len(corpus) <= 40
    with pytest.raises(OptionError, match="max_tokens"):
        Corpus(3)


def tokenizer(*tokens: str) -> Tokenizer:
    words = tokenizers.models.WordLevel({token: at for at, token in enumerate(tokens)}, unk_token=tokens[0])
    return Tokenizer(tokenizers.Tokenizer(words), name=tokens[-1])


@pytest.mark.parametrize("outputs", [[], [[]], [[1, 2, 3], [], [4, 5]]])
def test_a_corpus_comes_back_from_disk(tmp_path: Path, outputs: list[list[int]]) -> None:
    made = tokenizer("a", "b")
    Corpus.of(outputs, 77).save(tmp_path / "corpus.npz", made)
    loaded = Corpus.load(tmp_path / "corpus.npz", made)
    assert loaded.outputs == [tuple(output) for output in outputs]
    assert loaded.max_tokens == 77
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.npz"]


def test_what_is_no_corpus_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "corpus.npz"
    with pytest.raises(ModelError, match="does not exist"):
        Corpus.load(file)
    Corpus.of([[1, 2, 3]] * 5).save(file)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match="not a whole corpus"):
        Corpus.load(file)
    np.savez(file, format=np.array("something else"))
    with pytest.raises(ModelError, match="another format"):
        Corpus.load(file)
    np.savez(file, format=np.array([{}], dtype=object))
    with pytest.raises(ModelError, match="not a whole corpus"):
        Corpus.load(file)
    np.savez(
        file,
        format=np.array("draftwise corpus 1"),
        tokenizer=np.array(""),
        max_tokens=np.array(9),
        lengths=np.array([3]),
        token_ids=np.array([1, 2]),
    )
    with pytest.raises(ModelError, match="lengths do not fit"):
        Corpus.load(file)
    with pytest.raises(ModelError, match="cannot be written"):
        Corpus().save(tmp_path / "nowhere" / "corpus.npz")


def test_a_corpus_of_another_tokenizer_is_refused(tmp_path: Path) -> None:
    Corpus.of([[1]]).save(tmp_path / "corpus.npz", tokenizer("a", "b"))
    with pytest.raises(TokenizerMismatchError, match="another tokenizer than that of c"):
        Corpus.load(tmp_path / "corpus.npz", tokenizer("a", "c"))
    with pytest.raises(TokenizerMismatchError, match="a model without one"):
        Corpus.load(tmp_path / "corpus.npz")


def test_a_tree_has_what_is_likeliest_first() -> None:
    state = Suffix(branching=2).open(TARGET, 1, 100)
    text = [1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 4, 7, 1, 2]
    draft = state.propose([text], [UpTo(4)], [Sampler(SamplingParams())], [Streams.seeded(0).drafting])[0]
    assert draft.token_ids[:2] == (3, 4)
    assert draft.parents is not None
    assert draft.parents[:2] == (-1, -1)  # 3 came twice, 4 once: each likelier than what follows them


def test_a_target_that_cannot_score_trees_is_refused() -> None:
    chains = TabularModel.random(9)
    chains.scores_trees = False
    for drafter in (Suffix(branching=2), TokenRecycling(branching=2)):
        with pytest.raises(UnsupportedError, match="cannot score trees"):
            drafter.open(chains, 1, 10)
        with pytest.raises(OptionError, match="branching"):
            type(drafter)(branching=0)
    Suffix().open(chains, 1, 10)


def test_text_that_an_encoder_read_comes_before_the_context() -> None:
    source, context = (5, 1, 2, 3, 4, 5, 6), [0, 1, 2]
    state = opened()
    state.begin(0, source)
    assert propose(state, context) == propose(opened(), [*source, *context]) == (3, 4, 5)
    assert propose(state, [*context, 3, 9, 1, 2]) == propose(opened(), [*source, *context, 3, 9, 1, 2])
    state.begin(0, None)
    assert propose(state, context) == ()
