"""What a drafter's model makes of the next token under controls, and where they leave it nothing."""

import numpy as np
import pytest

from draftwise.control.base import UpTo
from draftwise.drafters.ahead import Next, likelihood
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.growth import StaticTree
from draftwise.drafters.tree import TreeDraftModel
from draftwise.models.tabular import TabularModel
from draftwise.randomness import Streams
from draftwise.sampling import Sampler, SamplingParams

TARGET = TabularModel.random(4, seed=1)
NARROW = TabularModel.random(2, seed=2)
LOGITS = np.log([0.5, 0.3, 0.2])


def sampler(temperature: float, *banned: int) -> Sampler:
    return Sampler.start(SamplingParams(temperature, top_k=2, banned=banned), [0], TARGET)


@pytest.mark.parametrize(
    ("temperature", "banned", "token_id", "confidence"),
    [(0.0, (), 0, 0.5), (0.0, (0,), 1, 0.6), (1.0, (), 0, 0.625), (1.0, (0,), 1, 0.6), (0.0, (0, 1), 2, 1.0)],
)
def test_the_next_token(
    temperature: float, banned: tuple[int, ...], token_id: int, confidence: float
) -> None:
    ahead = Next(LOGITS, sampler(temperature, *banned))
    assert ahead.confidence == pytest.approx(confidence)
    if temperature:
        assert ahead.probs is not None
        assert ahead.probs.argmax() == token_id
        assert not ahead.probs[list(banned)].any()
    else:
        assert ahead.probs is None
        assert ahead.draw(Streams.seeded(0).drafting) == token_id


def test_greedily_the_likelihood_is_the_softmax_of_what_may_follow() -> None:
    assert likelihood(LOGITS, sampler(0.0, 1))[:3] == pytest.approx([5 / 7, 0, 2 / 7])
    assert likelihood(LOGITS, sampler(1.0))[:3] == pytest.approx([0.625, 0.375, 0])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_that_knows_nothing_of_what_may_follow_does_not_guess(temperature: float) -> None:
    nothing = sampler(temperature, 0, 1)
    assert Next(LOGITS[:2], nothing).confidence == 0
    assert not likelihood(LOGITS[:2], nothing).any()
    for drafter in (
        DraftModel(NARROW),
        TreeDraftModel(NARROW),
        TreeDraftModel(NARROW, StaticTree.branching(2, 2), sampled=True),
    ):
        state = drafter.open(TARGET, 1, 50)
        (draft,) = state.propose([[0, 1]], [UpTo(4)], [nothing], [Streams.seeded(0).drafting])
        assert len(draft) == 0
