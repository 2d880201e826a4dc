"""What is asked for: a prompt, and all that belongs to its sequence alone."""

from collections.abc import Sequence as Tokens
from dataclasses import dataclass, replace
from typing import TypedDict

from draftwise.checks import listed, of_kind, token_ids, yes_or_no
from draftwise.errors import OptionError, PromptError
from draftwise.logprobs import Distribution, Logprobs
from draftwise.models.base import LanguageModel
from draftwise.prompt import Prompt, opening
from draftwise.randomness import CoupledStreams, Streams
from draftwise.sampling import Sampler, SamplingParams
from draftwise.sequence import Sequence, StopConditions
from draftwise.verification import find_rule


class Options(TypedDict, total=False):
    """The options of a `Request` as keywords; it says what they mean, and has their defaults."""

    sampling: SamplingParams | None
    max_new_tokens: int
    stop: str | Tokens[str]
    stop_token_ids: Tokens[int]
    ignore_eos: bool
    verification: str
    lenience: float
    seed: int | None
    logprobs: int | None
    logprobs_of: Distribution


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt and the options of its sequence.

    `prompt`: text, token ids, or chat messages (`{"role": ..., "content": ...}`); the encoder of a target
    that has one reads it, or else sound: a waveform `[samples]` or features `[mel bins, frames]`. `sampling`:
    None is greedy. `stop`: texts that end the output. `verification`: the rule by its name in
    `draftwise.verification.RULES`; "auto" is the best exact one for each draft, and "coupled" has drafter and
    target share noise that follows from seed and position, so that the tokens are those of plain decoding
    with "coupled" and the same seed, as far as logits have the same bits at every width; "lenient" with a
    `lenience` below 1 gives up the target's distribution for speed (2211.17192, A.5).
    `logprobs`: how many of the likeliest tokens each step reports beside each that it emits, by their
    log-probabilities; None reports nothing. `logprobs_of`: under which distribution, as `Logprobs` says.
    Raises OptionError for an option out of range.
    """

    prompt: Prompt
    sampling: SamplingParams | None = None
    max_new_tokens: int = 256
    stop: str | Tokens[str] = ()
    stop_token_ids: Tokens[int] = ()
    ignore_eos: bool = False
    verification: str = "auto"
    lenience: float = 1.0
    seed: int | None = None
    logprobs: int | None = None
    logprobs_of: Distribution = "raw"

    def __post_init__(self) -> None:
        of_kind("sampling", self.sampling, SamplingParams | None, "a SamplingParams, or None")
        yes_or_no("ignore_eos", self.ignore_eos)
        # What these become is made for each sequence anew; here they refuse what they cannot take.
        self._stop_conditions(frozenset())
        self._logprobs()
        find_rule(self.verification, self.lenience)
        Streams.seeded(self.seed)
        if self.sampling and self.sampling.min_new_tokens > self.max_new_tokens:
            raise OptionError(
                f"min_new_tokens is {self.sampling.min_new_tokens} and max_new_tokens {self.max_new_tokens}; "
                "give at most that."
            )

    def samples(self, num_samples: int) -> list["Request"]:
        """As many requests, each with a seed of its own: this one's and those that follow, or none."""
        return [
            replace(self, seed=None if self.seed is None else self.seed + number)
            for number in range(num_samples)
        ]

    def sequence(self, target: LanguageModel) -> Sequence:
        """The sequence to generate, at its start.

        Raises OptionError for an option that this target cannot follow, and PromptError for a prompt that
        cannot be read or, with the new tokens, is longer than what the target holds.
        """
        prompt_ids, source = opening(target, self.prompt)
        sampling = SamplingParams() if self.sampling is None else self.sampling
        stop_conditions = self._stop_conditions(target.eos_token_ids)
        sequence = Sequence(
            prompt_ids,
            stop_conditions,
            Sampler.start(
                sampling,
                prompt_ids,
                target,
                stop_conditions.eos_token_ids,
                stop_conditions.stop_token_ids,
            ),
            CoupledStreams(self.seed) if self.verification == "coupled" else Streams.seeded(self.seed),
            target.tokenizer,
            find_rule(self.verification, self.lenience),
            source,
            is_seeded=self.seed is not None,
            logprobs=None if self.logprobs is None else self._logprobs(),
        )
        if sequence.max_length > target.max_length:
            raise PromptError(
                f"the prompt has {len(prompt_ids)} tokens and max_new_tokens is {self.max_new_tokens}, "
                f"but {target.name} holds at most {target.max_length} tokens; shorten the prompt or ask "
                "for fewer."
            )
        return sequence

    def _stop_conditions(self, eos_token_ids: frozenset[int]) -> StopConditions:
        return StopConditions(
            self.max_new_tokens,
            frozenset() if self.ignore_eos else eos_token_ids,
            frozenset(token_ids("stop_token_ids", self.stop_token_ids)),
            (self.stop,)
            if isinstance(self.stop, str)
            else listed("stop", self.stop, "text, or a list of texts"),
        )

    def _logprobs(self) -> Logprobs:
        return Logprobs(0 if self.logprobs is None else self.logprobs, self.logprobs_of)
