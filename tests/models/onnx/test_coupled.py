"""With noise that follows from seed and position, drafts leave sampled text as it is, too."""

from collections.abc import Callable

import pytest

from draftwise.decoding import generate
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.ngram import NgramModel
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.models.onnx.engine import OnnxModel
from draftwise.sampling import SamplingParams
from draftwise.types import Generation

PROMPT = [1, 2, 3]
DRAFTERS: dict[str, Callable[[OnnxModel], Drafter]] = {
    "the target itself": DraftModel,
    "lookup": lambda target: PromptLookup(draft_lengths=[(1, 4)]),
    "counts": lambda target: NgramModel.count([PROMPT * 5], target.vocab_size, order=2).drafter(),
}


def coupled(target: OnnxModel, drafter: Drafter | None, sampling: SamplingParams, seed: int) -> Generation:
    return generate(
        target,
        PROMPT,
        drafter=drafter,
        sampling=sampling,
        max_new_tokens=60,
        num_draft_tokens=3,
        verification="coupled",
        seed=seed,
    )


@pytest.mark.parametrize("sampling", [SamplingParams(1.0), SamplingParams(0.7, top_p=0.8)], ids=str)
@pytest.mark.parametrize("name", DRAFTERS)
def test_drafts_do_not_change_the_text(model: OnnxModel, name: str, sampling: SamplingParams) -> None:
    assert model.width_invariant
    for seed in range(2):
        plain = coupled(model, None, sampling, seed)
        drafted = coupled(model, DRAFTERS[name](model), sampling, seed)
        assert drafted.token_ids == plain.token_ids
        assert drafted.target_passes < plain.target_passes or name != "the target itself"
