"""No guess at all: plain decoding is the loop with empty drafts."""

from collections.abc import Sequence

from draftwise.control.base import Limit
from draftwise.models.base import LanguageModel, Tap
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler
from draftwise.types import Draft, Source, Step


class NoDrafter:
    """Always proposes the empty draft; it remembers nothing, so it is its own state."""

    name = "none"
    default_num_draft_tokens = 0
    taps: Sequence[Tap] = ()

    def open(self, target: LanguageModel, num_sequences: int, max_length: int) -> "NoDrafter":
        return self

    def begin(self, row: int, source: Source | None) -> None:
        """Nothing to forget."""

    def confidence(self, row: int, context: Sequence[int]) -> float:
        return 0.0

    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[Limit],
        samplers: Sequence[Sampler],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        return [Draft()] * len(contexts)

    def observe(self, step: Step) -> None:
        """Nothing to learn."""

    def close(self) -> None:
        """Nothing to release."""
