"""A draft model over the tokens of a target with another vocabulary."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from draftwise.control.base import Limit
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.translation.model import TranslatedModel
from draftwise.errors import TokenizerMismatchError, UnsupportedError
from draftwise.models.base import Tap
from draftwise.models.tabular import TabularModel
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler, SamplingParams, adjusted_probs
from draftwise.types import Draft
from tests.drafters.test_draft_model import RecordingModel, fed
from tests.enumeration import distance, law_of_generate, law_of_target
from tests.fakes import RowDrafter, byte_pairs

TARGET = TabularModel.random(6, 2, seed=1, tokenizer=byte_pairs("a", "b", "ab", "d", "Ġ", "Ã"))
OWN = byte_pairs("c", "b", "a", "cc", "Ġ")
SHARED = {0: 2, 1: 1, 4: 4}
SAMPLED = SamplingParams(temperature=1.0)


@pytest.fixture
def model() -> RecordingModel:
    return RecordingModel(TabularModel.random(5, 2, seed=2).table, tokenizer=OWN)


def test_the_distribution_is_the_models_over_shared_tokens_renormalised(model: RecordingModel) -> None:
    translated = TranslatedModel(model, TARGET)
    assert translated.shared == SHARED
    (logits,) = translated.open(1, 10).forward([[0, 1]], [2])
    own = np.exp([model.logits_after([2]), model.logits_after([2, 1])])
    for position in range(2):
        probs = adjusted_probs(logits[position], SAMPLED)
        expected = np.zeros(6)
        expected[list(SHARED)] = own[position][list(SHARED.values())]
        assert_allclose(probs, expected / expected.sum(), rtol=1e-12)


def test_a_token_that_the_model_lacks_is_read_as_its_text(model: RecordingModel) -> None:
    state = TranslatedModel(model, TARGET).open(1, 10)
    (logits,) = state.forward([[4, 2, 3, 5]], [4])
    assert fed(model) == [[[4, 2, 1, 0, 0]]]  # ab is a and b; d and half a character are nothing
    assert_array_equal(logits[1][list(SHARED)], model.logits_after([2, 1])[list(SHARED.values())])
    assert state.lengths == [4]
    state.keep(0, 2)
    (again,) = state.forward([[1]], [1])
    assert fed(model) == [[[1]]]
    assert_array_equal(again[0][list(SHARED)], model.logits_after([1, 1])[list(SHARED.values())])


def test_where_room_is_short_a_token_is_read_as_the_last_of_several() -> None:
    model = RecordingModel(TabularModel.random(5, 2, seed=2).table, tokenizer=OWN, max_length=5)
    state = TranslatedModel(model, TARGET).open(1, 4)
    state.forward([[2, 2, 2]], [1])
    state.forward([[2]], [1])
    assert fed(model) == [[[2, 1, 1, 1]], [[1]]]
    state.keep(0, 0)
    state.forward([[2, 0, 0, 0]], [1])
    assert fed(model) == [[[2, 1, 2, 2, 2]]]


def test_what_the_model_reads_before_every_text_comes_once() -> None:
    tokenizer = byte_pairs("c", "b", "a", "cc", "Ġ")
    tokenizer.leading_ids = [3]
    model = RecordingModel(TabularModel.random(5, 2, seed=2).table, tokenizer=tokenizer)
    state = TranslatedModel(model, TARGET).open(2, 10)
    state.forward([[0], [1, 1]], [1, 1])
    state.forward([[1], []], [1, 0])
    state.keep(1, 0)
    state.forward([[], [4]], [0, 1])
    assert fed(model) == [[[3, 2], [3, 1, 1]], [[1], []], [[], [3, 4]]]


def test_a_tree_of_tokens_that_are_read_as_several(model: RecordingModel) -> None:
    state = TranslatedModel(model, TARGET).open(1, 12)
    (tree,) = state.forward([[4, 2, 1, 2, 0]], [4], [[-1, 0, 0, 1, 3]])
    for index, path in enumerate([[4, 2], [4, 1], [4, 2, 2], [4, 2, 2, 0]]):
        alone = TranslatedModel(model, TARGET).open(1, 12)
        (expected,) = alone.forward([path], [1])
        assert_array_equal(tree[index], expected[0])
    state.keep_path(0, 1, [1, 3])
    assert state.lengths == [3]
    (after,) = state.forward([[1]], [1])
    (expected,) = TranslatedModel(model, TARGET).open(1, 12).forward([[4, 2, 2, 1]], [1])
    assert_array_equal(after[0], expected[0])


@pytest.mark.parametrize("sampling", [SAMPLED, SamplingParams(0.7, top_k=2), SamplingParams(1.5, top_p=0.8)])
def test_joint_law_is_the_targets(sampling: SamplingParams, model: RecordingModel) -> None:
    drafter = DraftModel(TranslatedModel(model, TARGET))
    law = law_of_generate(TARGET, (2, 3), 3, drafter=drafter, sampling=sampling, num_draft_tokens=2)
    assert distance(law, law_of_target(TARGET, (2, 3), 3, sampling)) < 1e-12


class Unnormalised(RowDrafter):
    """Draws from the distribution over shared tokens, and hands over the one that it was cut from."""

    def __init__(self, model: TabularModel) -> None:
        self.model = model
        self.translated = TranslatedModel(model, TARGET)

    def draft(self, context: Sequence[int], limit: Limit, sampler: Sampler, randomness: Randomness) -> Draft:
        if not limit.allows(0):
            return Draft()
        read = [own for token_id in context for own in self.translated.read(token_id) or [0]]
        logits = self.model.logits_after(read)
        drawn = randomness.sample(sampler.probs(self.translated.spread(logits[None])[0]))
        handed_over = np.zeros(6)
        handed_over[list(SHARED)] = sampler.probs(logits)[list(SHARED.values())]
        return Draft((drawn,), [handed_over])


def test_a_distribution_that_is_not_renormalised_would_be_caught(model: RecordingModel) -> None:
    options = {"sampling": SAMPLED, "num_draft_tokens": 1}
    law = law_of_generate(TARGET, (2, 3), 2, drafter=Unnormalised(model), **options)
    assert distance(law, law_of_target(TARGET, (2, 3), 2, SAMPLED)) > 0.01


def test_pairs_without_a_token_in_common_are_refused(model: RecordingModel) -> None:
    with pytest.raises(TokenizerMismatchError, match="share no token; take a TextDraftModel"):
        TranslatedModel(model, TabularModel.random(2, tokenizer=byte_pairs("x", "y")))


def test_taps_are_refused(model: RecordingModel) -> None:
    with pytest.raises(UnsupportedError, match="hands out no hidden states"):
        TranslatedModel(model, TARGET).open(1, 10, taps=[Tap((1,))])


def test_padded_vocabularies_need_no_translation() -> None:
    """As Qwen2.5 pads them: 151,936 logits in small models and 152,064 in large ones, for one tokenizer."""
    tokenizer = byte_pairs("a", "b")

    def sparse(vocab_size: int, *weights: float) -> TabularModel:
        logits = np.full(vocab_size, -np.inf)
        logits[: len(weights)] = np.log(weights)
        logits[-1] = 0.0
        return TabularModel(logits, tokenizer=tokenizer)

    for target, draft in (
        (sparse(152_064, 3, 2), sparse(151_936, 1, 2)),
        (sparse(151_936, 3, 2), sparse(152_064, 1, 2)),
    ):
        options = {"drafter": DraftModel(draft), "sampling": SAMPLED, "num_draft_tokens": 2}
        law = law_of_generate(target, (0,), 2, **options)
        assert distance(law, law_of_target(target, (0,), 2, SAMPLED)) < 1e-12
