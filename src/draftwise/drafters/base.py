"""The protocol of everything that guesses."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from draftwise.checks import of_kind
from draftwise.control.base import Limit
from draftwise.models.base import LanguageModel, Tap
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler
from draftwise.types import Draft, Source, Step


class DraftState(Protocol):
    """What a drafter remembers of several independent sequences (rows)."""

    @property
    def taps(self) -> Sequence[Tap]:
        """The hidden states it reads: the target's state is opened with them. Most drafters read none."""
        ...

    def begin(self, row: int, source: Source | None) -> None:
        """Draft for a new sequence in this row, and forget the one before.

        `source`: what the target's encoder reads, None where it has none.
        """
        ...

    def confidence(self, row: int, context: Sequence[int]) -> float | None:
        """What is known for free of the token that would follow `context`, as `Limit.choose` takes it."""
        ...

    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[Limit],
        samplers: Sequence[Sampler],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        """Guess the tokens that follow `contexts[row]` as far as `limits[row]` allows; none is a guess too.

        Token ids are below the target's `vocab_size`: it has to score them. A context only grows between
        calls, and is not to be changed or kept. A token is drawn once its limit has allowed it, and then is
        part of the draft: how many there are may depend on what was drafted before and on the distributions,
        never on a token just drawn. A sampled draft token that is dropped for its value biases the output.
        """
        ...

    def observe(self, step: Step) -> None:
        """Learn what became of a draft; the taps still hold the pass that verified it.

        Guesses that a grammar forbids are no part of it, and those that it forces are (`Sampler.fit`).
        """
        ...

    def close(self) -> None:
        """Release what the state holds; idempotent."""
        ...


@runtime_checkable
class Drafter(Protocol):
    """A way to guess the next tokens; one object serves any number of open states."""

    name: str
    default_num_draft_tokens: int

    def open(self, target: LanguageModel, num_sequences: int, max_length: int) -> DraftState:
        """Start drafting for a target; raises TokenizerMismatchError where the two cannot go together."""
        ...


def refuse_no_drafter(value: object) -> None:
    """Raise OptionError for anything but a drafter, such as its name or its class."""
    of_kind("a drafter", value, Drafter, "one such as PromptLookup()")
