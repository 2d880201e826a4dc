"""The values that pass between drafter, target, verification and loop.

`target_probs` and `draft_probs` are distributions over a vocabulary; in formulas p is the target's and q the
draft's, as in Leviathan, Kalman and Matias (arXiv 2211.17192).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from draftwise.errors import DraftError

Probs = NDArray[np.floating]
Logits = NDArray[np.floating]
# What the encoder of an encoder-decoder model reads: token ids, or sound, as a waveform `[samples]` or as
# features `[mel bins, frames]`.
Source = tuple[int, ...] | NDArray[np.floating]
TokenIds = NDArray[np.int64]
# From the tokens so far, the prompt's too, and the logits `[vocabulary]` after them to other logits of that
# shape: a function of these two alone. It may change the logits in place and return them, not the tokens.
Control = Callable[[TokenIds, Logits], Logits]


@dataclass(frozen=True, slots=True)
class Draft:
    """Guessed tokens, a chain or a tree, and what each was drawn from.

    `probs` is `[len(token_ids), vocabulary]`, row i the very distribution that `token_ids[i]` was sampled
    from; None for a deterministic guess, that is a point mass on each token. `parents` makes it a tree: the
    index of each token's parent, -1 for a guess at the next token; None is a chain. Guesses at one position
    are siblings, in the order in which they were drawn; each row of `probs` is given the siblings before it,
    so one drawn without replacement has zeros at their tokens. Raises DraftError unless each parent precedes
    its children.
    """

    token_ids: tuple[int, ...] = ()
    probs: Sequence[Probs] | None = None
    parents: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.parents is None:
            return
        if len(self.parents) != len(self.token_ids):
            raise DraftError(f"a draft of {len(self)} tokens has {len(self.parents)} parents; give one each.")
        for token, parent in enumerate(self.parents):
            if not -1 <= parent < token:
                raise DraftError(
                    f"token {token} of a draft has parent {parent}; a parent precedes its children, and -1 "
                    "is the text before the draft."
                )

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def depth(self) -> int:
        """The most tokens of it that can be accepted: the length of its longest path."""
        if self.parents is None:
            return len(self)
        depths = [0]  # of the text, then of each token
        for parent in self.parents:
            depths.append(depths[parent + 1] + 1)
        return max(depths)

    def parents_after(self, num_tokens: int) -> list[int] | None:
        """The parents of the draft and of `num_tokens` tokens of text fed before it; None is a chain."""
        if self.parents is None:
            return None
        return [*range(-1, num_tokens - 1), *(num_tokens + parent for parent in self.parents)]

    def path_to(self, index: int) -> list[int]:
        """The tokens that lead to the one at `index`, and that one; -1 is the text: none."""
        return path_to(index, self.token_ids, self.parents)

    def only(self, keeps: Callable[[int], bool]) -> "Draft":
        """A deterministic draft without the guesses whose index `keeps` refuses, and without those below."""
        place = {-1: -1}
        for index, parent in enumerate(range(-1, len(self) - 1) if self.parents is None else self.parents):
            if parent in place and keeps(index):
                place[index] = len(place) - 1
        kept = list(place)[1:]
        parents = None if self.parents is None else tuple(place[self.parents[index]] for index in kept)
        return Draft(tuple(self.token_ids[index] for index in kept), None, parents)

    def children(self) -> list[list[int]]:
        """The guesses that follow the text, then those that follow each token, in the order drawn.

        `children()[index + 1]` are those that follow the token at `index`, -1 being the text.
        """
        following: list[list[int]] = [[] for _ in range(len(self) + 1)]
        for token, parent in enumerate(range(-1, len(self) - 1) if self.parents is None else self.parents):
            following[parent + 1].append(token)
        return following


def path_to(node: int, token_ids: Sequence[int], parents: Sequence[int] | None) -> list[int]:
    """The guesses from the first depth down to `node`, -1 being the text; parents as those of a draft."""
    path = []
    while node >= 0:
        path.append(token_ids[node])
        node = node - 1 if parents is None else parents[node]
    return path[::-1]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which draft tokens the target accepted, and the one token of its own that follows them.

    `path`: their indices in the draft, from the first down; of a chain those are its first tokens.
    """

    path: tuple[int, ...]
    token_id: int

    @property
    def num_accepted(self) -> int:
        return len(self.path)


class Origin(StrEnum):
    """Where an emitted token came from (Figure 1 of 2211.17192)."""

    ACCEPTED = "accepted"  # drafted, and kept
    RECOVERED = "recovered"  # drawn from the residual in place of a rejected draft token
    BONUS = "bonus"  # drawn from the target where nothing was guessed: after all of a draft, or without one


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
class TokenLogprob:
    """How likely a token was, by the natural logarithm, and the likeliest ones in its place."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]  # token ids and their own, the likeliest first; the token may be there
    distribution: str  # under which: "raw", the target's own, or "adjusted", what the token was sampled from


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
    parents: tuple[int, ...] | None = None  # the tree that `drafted` forms, as in Draft; None: a chain
    path: tuple[int, ...] | None = None  # the indices of the accepted tokens; None: the first ones
    logprobs: tuple[TokenLogprob, ...] | None = None  # of the emitted tokens, if they were asked for
    # What the target said after the text and after each drafted token, `[len(drafted) + 1, vocabulary]`,
    # while a drafter observes the step; None afterwards.
    logits: Logits | None = field(default=None, repr=False, compare=False)

    @property
    def num_verified(self) -> int:
        """Positions at which guesses were looked at, up to and including the first without a right one."""
        return self.num_accepted + self._was_rejected

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The origin of each emitted token."""
        own = Origin.RECOVERED if self._was_rejected else Origin.BONUS
        return tuple(
            Origin.ACCEPTED if index < self.num_accepted else own for index in range(len(self.emitted))
        )

    @property
    def _was_rejected(self) -> bool:
        """Whether something else was guessed where the target put a token of its own."""
        if self.parents is None or self.path is None:
            return self.num_accepted < len(self.drafted)
        return (self.path[-1] if self.path else -1) in self.parents


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
    def logprobs(self) -> tuple[TokenLogprob, ...] | None:
        """Of each token; None where they were not asked for."""
        reports = [step.logprobs for step in self.steps if step.logprobs is not None]
        return tuple(token for report in reports for token in report) if reports else None

    @property
    def target_passes(self) -> int:
        return len(self.steps)

    @property
    def acceptance_rate(self) -> float | None:
        """Tokens accepted over positions verified, a rejection included; None if none was drafted."""
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
