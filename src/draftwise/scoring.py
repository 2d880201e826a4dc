"""How likely a target takes a given continuation to be."""

from collections.abc import Sequence as Tokens
from contextlib import closing
from dataclasses import dataclass

from draftwise.checks import of_kind, token_ids, whole_number
from draftwise.errors import PromptError
from draftwise.logprobs import Logprobs
from draftwise.models.base import LanguageModel
from draftwise.prompt import Prompt, encode_output, encode_prompt, opening
from draftwise.sampling import Distributions, Sampler, SamplingParams
from draftwise.types import Draft, TokenLogprob

_CHUNK = 64  # positions whose logits are held at once


@dataclass(frozen=True, slots=True)
class Score:
    """The log-likelihood of a continuation, token by token."""

    tokens: tuple[TokenLogprob, ...]

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(token.token_id for token in self.tokens)

    @property
    def logprob(self) -> float:
        """Of the whole continuation: the sum."""
        return sum(token.logprob for token in self.tokens)


def score(
    target: LanguageModel,
    prompt: Prompt,
    continuation: str | Tokens[int],
    *,
    sampling: SamplingParams | None = None,
    num_top: int = 0,
) -> Score:
    """The log-likelihood of `continuation` after `prompt`, from one reading of both.

    It is the target's own or, with `sampling`, that of being sampled so; -inf for what never would be.
    `num_top`: how many of the likeliest tokens are reported at each place. A continuation that is text goes
    with a prompt that is text, and is read together with it, or with what an encoder reads. Raises
    PromptError where prompt and continuation are not whole tokens each, cannot be read or are longer than the
    target holds, and OptionError for a continuation that is neither text nor token ids.
    """
    logprobs = Logprobs(whole_number("num_top", num_top, least=0), "adjusted" if sampling else "raw")
    of_kind("sampling", sampling, SamplingParams | None, "a SamplingParams, or None")
    prompt_ids, source = opening(target, prompt)
    continuation_ids = _continuation_ids(target, prompt, prompt_ids, continuation)
    length = len(prompt_ids) + len(continuation_ids) - 1
    if length > target.max_length:
        raise PromptError(
            f"prompt and continuation have {length + 1} tokens, but {target.name} holds at most "
            f"{target.max_length}; shorten one of them."
        )
    sampler = Sampler.start(sampling or SamplingParams(), prompt_ids, target)
    tokens: list[TokenLogprob] = []
    fed = prompt_ids
    with closing(target.open(1, length)) as state:
        state.begin(0, source)
        for start in range(0, len(continuation_ids), _CHUNK):
            chunk = continuation_ids[start : start + _CHUNK]
            draft = Draft(tuple(chunk[:-1]))
            (logits,) = state.forward([[*fed, *draft.token_ids]], [len(chunk)])
            probs = Distributions(logits, sampler, draft)
            tokens += logprobs.of(chunk, range(len(draft)), logits, probs)
            sampler, fed = sampler.after(chunk), chunk[-1:]
    return Score(tuple(tokens))


def _continuation_ids(
    target: LanguageModel, prompt: Prompt, prompt_ids: list[int], continuation: str | Tokens[int]
) -> list[int]:
    if not isinstance(continuation, str):
        continuation = token_ids("continuation", continuation)
    if not continuation:
        raise PromptError("the continuation is empty; give at least one character or one token.")
    if not isinstance(continuation, str) or target.encoder:
        return encode_output(target, continuation)
    if not isinstance(prompt, str):
        raise PromptError(
            "the continuation is text and the prompt is not; give the continuation as token ids."
        )
    together = encode_prompt(target, prompt + continuation)
    if together[: len(prompt_ids)] != prompt_ids or len(together) == len(prompt_ids):
        raise PromptError(
            "no token ends where the prompt does and the continuation begins; move the place, such as to "
            "before a space, or give both as token ids."
        )
    return together[len(prompt_ids) :]
