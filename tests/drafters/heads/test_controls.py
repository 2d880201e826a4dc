"""Heads draft under the controls of the text, along each path of their own guesses."""

from itertools import pairwise
from pathlib import Path

import pytest
from transformers import PreTrainedModel

from draftwise.decoding import generate
from draftwise.drafters.growth import DynamicTree
from draftwise.drafters.heads import load_heads
from draftwise.models.torch import TorchModel
from draftwise.sampling import SamplingParams
from tests.drafters.heads import published
from tests.drafters.heads.published import METHODS, VOCAB_SIZE
from tests.drafters.heads.test_heads import PROMPT, Recording
from tests.models.tiny import one_thread  # noqa: F401

# Even numbers and odd ones in turn, and no number below 6.
TURNS = [[one, other] for one in range(VOCAB_SIZE) for other in range(one % 2, VOCAB_SIZE, 2)]
CONTROLS = {"banned": [*range(6), *TURNS], "repetition_penalty": 1.3, "frequency_penalty": 0.5}


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return published.target()


@pytest.fixture(scope="module")
def target(model: PreTrainedModel) -> TorchModel:
    return TorchModel(model, name="tiny")


TREE = DynamicTree(8, width=3, depth=3)


@pytest.mark.parametrize(
    ("tree", "temperature"),
    [(None, 0.0), (None, 1.0), (TREE, 1.0)],  # sampling goes down more branches of a tree
    ids=["greedy chains", "sampled chains", "sampled trees"],
)
@pytest.mark.parametrize("method", METHODS)
def test_no_guess_is_one_that_the_target_must_refuse(
    method: str, temperature: float, tree: DynamicTree | None, target: TorchModel, tmp_path: Path
) -> None:
    config, weights = METHODS[method]()
    drafter = Recording(load_heads(published.save(tmp_path, method, config, weights), target, tree=tree))
    sampling = SamplingParams(temperature, **CONTROLS)  # type: ignore[arg-type]
    generation = generate(
        target,
        PROMPT,
        drafter=drafter,
        num_draft_tokens=None,
        sampling=sampling,
        max_new_tokens=24,
        seed=3,
    )
    assert sum(len(draft) for _, draft in drafter.drafts) > 10
    for context, draft in drafter.drafts:
        for index in range(len(draft)):
            path = [context[-1], *draft.path_to(index)]
            assert all((one + other) % 2 for one, other in pairwise(path))
            assert min(path[1:]) >= 6
    if not temperature:
        assert (
            generation.token_ids == generate(target, PROMPT, sampling=sampling, max_new_tokens=24).token_ids
        )
