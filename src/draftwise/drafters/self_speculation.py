"""The target drafts for itself with some of its layers: no second model, and no second cache."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from draftwise.drafters.draft_model import DraftModel, DraftModelState
from draftwise.errors import OptionError
from draftwise.models.base import LanguageModel, Tap

if TYPE_CHECKING:
    from draftwise.models.torch.engine import TorchModel


class SelfSpeculation(DraftModel):
    """Drafts with the first layers of a PyTorch target, or without some: LayerSkip (2404.16710), Draft &
    Verify (2309.08168).

    Give either `exit_layer`, how many layers run before the final norm and head, or `skip_layers`, those that
    do not run, counted from 0. It reads the keys and values of accepted tokens from the target's cache; those
    of its guesses stand where the target writes its own next. Raises OptionError for layers that are not
    there, and for num_draft_tokens below 1.
    """

    def __init__(
        self,
        target: "TorchModel",
        *,
        exit_layer: int | None = None,
        skip_layers: Iterable[int] = (),
        name: str = "self",
        num_draft_tokens: int = 4,
    ) -> None:
        skipped = sorted(set(skip_layers))
        if (exit_layer is None) != bool(skipped):
            raise OptionError("give exit_layer or skip_layers, one of them.")
        if exit_layer is not None:
            skipped = list(range(max(exit_layer, 0), target.num_layers))
            if not skipped:
                raise OptionError(
                    f"exit_layer is {exit_layer}, but {target.name} has {target.num_layers}; give less."
                )
        self.target = target
        self.shallow = target.without_layers(skipped)
        super().__init__(self.shallow, name, num_draft_tokens)

    def open(self, target: LanguageModel, num_sequences: int, max_length: int) -> "SelfSpeculationState":
        """Start drafting; raises OptionError for another target than its own."""
        if target is not self.target:
            raise OptionError(
                f"{self.name} drafts with layers of {self.target.name}, not for {target.name}; "
                "make one for each target."
            )
        return SelfSpeculationState(self, num_sequences, max_length)


class SelfSpeculationState(DraftModelState):
    """Drafts where the target's cache ends; nothing before the target has read the prompt."""

    def __init__(self, drafter: SelfSpeculation, num_sequences: int, max_length: int) -> None:
        self._tap = Tap(())
        self.taps = (self._tap,)
        cache = drafter.shallow.open_beside(num_sequences, max_length, self._tap)
        guessing = drafter.drafter.open(drafter.shallow, num_sequences, max_length)
        super().__init__(drafter, cache, guessing, max_length, drafter.target.vocab_size, num_sequences)

    def _room(self, row: int, context: Sequence[int]) -> int:
        held = self._tap.state.lengths[row] if self._tap.state else len(context) - 1
        return super()._room(row, context) if held == len(context) - 1 else 0
