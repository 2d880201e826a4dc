"""One sequence while it is generated: its tokens, its settings, its text, and where it must end."""

from collections.abc import Sequence as Tokens
from dataclasses import dataclass

import numpy as np

from draftwise.checks import whole_number
from draftwise.errors import OptionError
from draftwise.logprobs import Logprobs
from draftwise.randomness import CoupledStreams, Streams
from draftwise.sampling import Sampler, SamplingParams
from draftwise.tokenizer import Tokenizer
from draftwise.types import FinishReason, Source
from draftwise.verification import Rule, verify


@dataclass(frozen=True, slots=True)
class StopConditions:
    """What ends a sequence. The token that meets a condition is part of the output; its text is not,
    and neither is a stop string.
    """

    max_new_tokens: int
    eos_token_ids: frozenset[int] = frozenset()
    stop_token_ids: frozenset[int] = frozenset()
    stop_strings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        whole_number("max_new_tokens", self.max_new_tokens, least=1)
        if odd := [string for string in self.stop_strings if not isinstance(string, str)]:
            raise OptionError(f"a stop string is {odd[0]!r}; give text, or stop_token_ids for tokens.")
        if not all(self.stop_strings):
            raise OptionError("a stop string is empty; leave it out or give it at least one character.")


class Sequence:
    """A prompt that grows token by token, in order, until a stop condition is met."""

    def __init__(
        self,
        prompt: Tokens[int],
        stop: StopConditions,
        sampler: Sampler,
        streams: Streams | CoupledStreams,
        tokenizer: Tokenizer | None,
        rule: Rule = verify,
        source: Source | None = None,
        *,
        is_seeded: bool = False,
        logprobs: Logprobs | None = None,
    ) -> None:
        """`is_seeded`: whether it is to be the same again, whatever the clock says and the other rows do.
        `logprobs`: what its steps report of each token; None for nothing.
        """
        if stop.stop_strings and tokenizer is None:
            raise OptionError(
                "stop strings need a tokenizer, and this model has none; stop on token ids instead."
            )
        self.token_ids = list(prompt)
        self.num_prompt_tokens = len(prompt)
        self.stop = stop
        self.sampler = sampler
        self.streams = streams
        self.rule = rule
        self.source = source
        self.is_seeded = is_seeded
        self.logprobs = logprobs
        self.finish_reason: FinishReason | None = None
        self._detokenizer = tokenizer.stream() if tokenizer else None
        self._held_back = ""  # text that may yet turn out to be the beginning of a stop string

    def begins_as(self, other: "Sequence") -> bool:
        """Whether both have one prompt and one source."""
        prompts = [row.token_ids[: row.num_prompt_tokens] for row in (self, other)]
        if self.source is None or other.source is None:
            return prompts[0] == prompts[1] and self.source is other.source
        return prompts[0] == prompts[1] and np.array_equal(self.source, other.source)

    @property
    def max_length(self) -> int:
        """The most tokens that it may come to have, those of the prompt included."""
        return self.num_prompt_tokens + self.stop.max_new_tokens

    @property
    def is_new(self) -> bool:
        """Whether nothing of it was generated."""
        return len(self.token_ids) == self.num_prompt_tokens

    @property
    def budget(self) -> int:
        """How many more tokens may be emitted."""
        return self.max_length - len(self.token_ids)

    @property
    def room(self) -> int:
        """The most tokens that a draft may have: the target always adds one of its own; 0 when finished."""
        return 0 if self.finish_reason else self.budget - 1

    def extend(self, token_ids: Tokens[int]) -> tuple[str, ...]:
        """Append tokens, at most up to the one that ends the sequence; return the text each completed."""
        pieces = []
        for token_id in token_ids:
            pieces.append(self._append(token_id))
            if self.finish_reason:
                break
        self.sampler = self.sampler.after(token_ids[: len(pieces)])
        return tuple(pieces)

    def _append(self, token_id: int) -> str:
        self.token_ids.append(token_id)
        if token_id in self.stop.eos_token_ids:
            return self._finish(FinishReason.EOS)
        if token_id in self.stop.stop_token_ids:
            return self._finish(FinishReason.STOP_TOKEN)
        if self._detokenizer:
            self._held_back += self._detokenizer.step(token_id)
            at = min((i for s in self.stop.stop_strings if (i := self._held_back.find(s)) >= 0), default=None)
            if at is not None:
                self.finish_reason = FinishReason.STOP_STRING
                return self._held_back[:at]
        if not self.budget:
            return self._finish(FinishReason.LENGTH)
        return self._release()

    def _finish(self, reason: FinishReason) -> str:
        self.finish_reason = reason
        return self._held_back + (self._detokenizer.flush() if self._detokenizer else "")

    def _release(self) -> str:
        """Give out the text that no longer can be part of a stop string."""
        unsure = max((_overlap(self._held_back, string) for string in self.stop.stop_strings), default=0)
        released = self._held_back[: len(self._held_back) - unsure]
        self._held_back = self._held_back[len(released) :]
        return released


def nobody() -> Sequence:
    """A sequence that is finished: it stands in a row that is free."""
    finished = Sequence([0], StopConditions(1), Sampler(SamplingParams()), Streams.seeded(0), None)
    finished.finish_reason = FinishReason.LENGTH
    return finished


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that `stop` begins with."""
    return next(n for n in range(min(len(text), len(stop) - 1), -1, -1) if text.endswith(stop[:n]))
