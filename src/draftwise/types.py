"""The values that pass between drafter, target, verification and loop.

`target_probs` and `draft_probs` are distributions over a vocabulary; in formulas p is the target's and q the
draft's, as in Leviathan, Kalman and Matias (arXiv 2211.17192).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Probs = NDArray[np.floating]
Logits = NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Draft:
    """Guessed tokens in order, and what each was drawn from.

    `probs` is `[len(token_ids), vocabulary]`, row i the very distribution that `token_ids[i]` was sampled
    from; None for a deterministic guess, that is a point mass on each token.
    """

    token_ids: tuple[int, ...] = ()
    probs: Sequence[Probs] | None = None

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many draft tokens the target accepted, and the one token of its own that follows them."""

    num_accepted: int
    token_id: int


class Origin(StrEnum):
    """Where an emitted token came from (Figure 1 of 2211.17192)."""

    ACCEPTED = "accepted"  # drafted, and kept
    RECOVERED = "recovered"  # drawn from the residual in place of a rejected draft token
    BONUS = "bonus"  # drawn from the target after a draft that was accepted whole, or empty


class FinishReason(StrEnum):
    """Why a sequence ended."""

    EOS = "eos"
    STOP_TOKEN = "stop_token"
    STOP_STRING = "stop_string"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Seconds:
    """Wall time split by what it was spent on."""

    draft: float = 0.0
    verify: float = 0.0
    other: float = 0.0

    @property
    def total(self) -> float:
        return self.draft + self.verify + self.other

    def __add__(self, more: "Seconds") -> "Seconds":
        return Seconds(self.draft + more.draft, self.verify + more.verify, self.other + more.other)


@dataclass(frozen=True, slots=True)
class Step:
    """One target pass of one sequence: what was drafted, what was kept, what was emitted."""

    row: int
    drafted: tuple[int, ...]
    num_accepted: int  # draft tokens accepted by the rule, before any stop condition cut the output
    emitted: tuple[int, ...]  # accepted tokens and the target's own, cut at a stop condition
    pieces: tuple[str, ...]  # the text that each emitted token completed; "" without a tokenizer
    num_fed: int  # positions that the target scored: the prompt too in the first step
    seconds: Seconds
    finish_reason: FinishReason | None = None

    @property
    def num_verified(self) -> int:
        """Draft tokens looked at, up to and including the first rejection."""
        return min(self.num_accepted + 1, len(self.drafted))

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The origin of each emitted token."""
        own = Origin.RECOVERED if self.num_accepted < len(self.drafted) else Origin.BONUS
        return tuple(
            Origin.ACCEPTED if index < self.num_accepted else own for index in range(len(self.emitted))
        )


@dataclass(frozen=True, slots=True)
class Generation:
    """A finished sequence, and the record of every step that made it."""

    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    num_prompt_tokens: int
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, steps: Iterable[Step], num_prompt_tokens: int) -> "Generation":
        """Collect the steps of one finished sequence."""
        steps = tuple(steps)
        finish_reason = steps[-1].finish_reason
        if finish_reason is None:
            raise ValueError("the last step did not end the sequence.")
        token_ids = tuple(token_id for step in steps for token_id in step.emitted)
        text = "".join(piece for step in steps for piece in step.pieces)
        return cls(token_ids, text, finish_reason, num_prompt_tokens, steps)

    @property
    def target_passes(self) -> int:
        return len(self.steps)

    @property
    def acceptance_rate(self) -> float | None:
        """Tokens accepted over tokens verified, the first rejected one included; None if none was drafted."""
        verified = sum(step.num_verified for step in self.steps)
        return sum(step.num_accepted for step in self.steps) / verified if verified else None

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens emitted per target pass (τ)."""
        return len(self.token_ids) / len(self.steps)

    @property
    def seconds(self) -> Seconds:
        return sum((step.seconds for step in self.steps), Seconds())

    @property
    def decode_tokens_per_second(self) -> float | None:
        """Tokens a second after the pass that read the prompt; None if that pass was the only one."""
        tokens = sum(len(step.emitted) for step in self.steps[1:])
        seconds = sum(step.seconds.total for step in self.steps[1:])
        return tokens / seconds if tokens else None
