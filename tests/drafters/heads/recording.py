"""A drafter whose drafts are remembered, to be held against the equations."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from draftwise.control.base import Limit
from draftwise.drafters.base import Drafter, DraftState
from draftwise.models.base import LanguageModel, Tap
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler
from draftwise.types import Draft, Source, Step
from tests.drafters.heads.statements import stated_logits


class Recording:
    """Remembers every draft of a drafter, and the context that it was made for."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self.name = drafter.name
        self.default_num_draft_tokens = drafter.default_num_draft_tokens
        self.drafts: list[tuple[list[int], Draft]] = []

    def open(self, target: LanguageModel, num_sequences: int, max_length: int) -> "RecordingState":
        return RecordingState(self._drafter.open(target, num_sequences, max_length), self.drafts)


class RecordingState:
    def __init__(self, state: DraftState, drafts: list[tuple[list[int], Draft]]) -> None:
        self._state = state
        self._drafts = drafts
        self.taps: Sequence[Tap] = state.taps

    def begin(self, row: int, source: Source | None) -> None:
        self._state.begin(row, source)

    def confidence(self, row: int, context: Sequence[int]) -> float | None:
        return self._state.confidence(row, context)

    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[Limit],
        samplers: Sequence[Sampler],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        drafts = self._state.propose(contexts, limits, samplers, randomness)
        self._drafts += [(list(context), draft) for context, draft in zip(contexts, drafts, strict=True)]
        return drafts

    def observe(self, step: Step) -> None:
        self._state.observe(step)

    def close(self) -> None:
        self._state.close()


def assert_drafts_are_as_stated(
    method: str, weights: dict[str, Tensor], model: PreTrainedModel, drafts: list[tuple[list[int], Draft]]
) -> None:
    for context, draft in drafts:
        if not draft.token_ids:
            continue
        with torch.inference_mode():
            logits = stated_logits(method, weights, model, context, draft.token_ids)
        if draft.probs is None:
            assert list(draft.token_ids) == logits.argmax(-1).tolist()
        else:
            np.testing.assert_allclose(np.array(draft.probs), logits.softmax(-1), rtol=0, atol=3e-4)
