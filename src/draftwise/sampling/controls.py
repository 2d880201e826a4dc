"""What changes logits before a token is drawn: functions of all tokens so far and the logits after them.

None of them remembers anything, so that at each position of a draft they are what they would be in plain
decoding, and nothing has to go back after a rejection.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from draftwise.errors import OptionError
from draftwise.models.base import LanguageModel
from draftwise.sampling.params import SamplingParams, as_sequence
from draftwise.types import Control, Logits, TokenIds


def controls_of(
    params: SamplingParams,
    num_prompt_tokens: int,
    target: LanguageModel,
    eos_token_ids: Collection[int],
    stop_token_ids: Collection[int] = (),
) -> Iterator[Control]:
    """The controls but for the grammar that the parameters ask for, in their order.

    What asks for nothing has none. Raises OptionError for a token id that the target lacks, and for text
    where it has no tokenizer.
    """
    _refuse_unknown("stop_token_ids", stop_token_ids, target)
    if params.logit_bias:
        _refuse_unknown("logit_bias", params.logit_bias, target)
        yield biased(params.logit_bias)
    if params.repetition_penalty != 1:
        yield without_repetition(params.repetition_penalty)
    if params.presence_penalty or params.frequency_penalty:
        yield with_penalties(params.presence_penalty, params.frequency_penalty, num_prompt_tokens)
    if params.banned:
        sequences = [sequence for each in params.banned for sequence in _spelled(each, target)]
        _refuse_unknown("banned", [token_id for sequence in sequences for token_id in sequence], target)
        yield without_banned(sequences)
    if params.min_new_tokens:
        yield without_early_end(params.min_new_tokens, {*eos_token_ids, *stop_token_ids}, num_prompt_tokens)
    yield from map(processed, params.processors)


def biased(logit_bias: Mapping[int, float]) -> Control:
    """Adds a number to the logits of some tokens."""
    token_ids, biases = list(map(int, logit_bias)), list(logit_bias.values())

    def control(tokens: TokenIds, logits: Logits) -> Logits:
        logits[token_ids] += np.array(biases, logits.dtype)
        return logits

    return control


def without_repetition(penalty: float) -> Control:
    """Divides positive logits of tokens that came before, in the prompt too, and multiplies negative ones."""

    def control(tokens: TokenIds, logits: Logits) -> Logits:
        seen = logits[tokens]
        logits[tokens] = np.where(seen < 0, seen * penalty, seen / penalty)
        return logits

    return control


def with_penalties(presence: float, frequency: float, num_prompt_tokens: int) -> Control:
    """Lowers the logits of tokens in the output, once and for each time that they came."""

    def control(tokens: TokenIds, logits: Logits) -> Logits:
        seen, counts = np.unique(tokens[num_prompt_tokens:], return_counts=True)
        logits[seen] -= (presence + frequency * counts).astype(logits.dtype)
        return logits

    return control


def without_banned(sequences: Sequence[Sequence[int]]) -> Control:
    """Bans the last token of each sequence where all the others came just before."""
    # By the number of those others: what they are, and the tokens that must not follow.
    endings: dict[int, dict[tuple[int, ...], list[int]]] = {}
    for *before, last in sequences:
        endings.setdefault(len(before), {}).setdefault(tuple(before), []).append(last)

    def control(tokens: TokenIds, logits: Logits) -> Logits:
        for length, banned in endings.items():
            recent = tuple(tokens[max(0, len(tokens) - length) :].tolist())
            logits[banned.get(recent, [])] = -np.inf
        return logits

    return control


def without_early_end(min_new_tokens: int, end_token_ids: Collection[int], num_prompt_tokens: int) -> Control:
    """Bans the tokens that end a sequence before the output has so many others."""
    ends = sorted(end_token_ids)

    def control(tokens: TokenIds, logits: Logits) -> Logits:
        if len(tokens) - num_prompt_tokens < min_new_tokens:
            logits[ends] = -np.inf
        return logits

    return control


def processed(processor: Any) -> Control:
    """A function of the caller's, or a LogitsProcessor of transformers, with a check of what it returns."""
    of_transformers = any(base.__module__.startswith("transformers.") for base in type(processor).__mro__)
    name = getattr(processor, "__name__", type(processor).__name__)

    def control(tokens: TokenIds, logits: Logits) -> Logits:
        shape, dtype = logits.shape, logits.dtype
        if of_transformers:
            import torch  # which is there, as the processor is

            input_ids, scores = torch.from_numpy(tokens.copy()), torch.from_numpy(logits)
            returned = processor(input_ids[None], scores[None])[0].numpy()
        else:
            returned = processor(tokens, logits)
        try:
            changed: Logits = np.asarray(returned, dtype)
        except (TypeError, ValueError):
            raise OptionError(
                f"the processor {name} returned {type(returned).__name__}; let it return logits."
            ) from None
        if changed.shape != shape:
            raise OptionError(
                f"the processor {name} returned shape {changed.shape} for logits of shape {shape}; "
                "let it return logits of all tokens."
            )
        return changed

    return control


def _spelled(banned: int | Sequence[int] | str, target: LanguageModel) -> list[Sequence[int]]:
    """The token sequences that are banned: of text, those that begin a text and that follow a space."""
    sequence = as_sequence(banned)
    if not isinstance(sequence, str):
        return [sequence]
    if target.tokenizer is None:
        raise OptionError(f"{target.name} has no tokenizer to ban {sequence!r} with; ban token ids instead.")
    return [
        target.tokenizer.encode(text, add_special_tokens=False)
        for text in (sequence, f" {sequence.lstrip()}")
    ]


def _refuse_unknown(option: str, token_ids: Collection[int], target: LanguageModel) -> None:
    unknown = [token_id for token_id in token_ids if not 0 <= token_id < target.vocab_size]
    if unknown:
        raise OptionError(
            f"{option} has token id {unknown[0]}, which is outside {target.name}'s vocabulary of "
            f"{target.vocab_size}."
        )
