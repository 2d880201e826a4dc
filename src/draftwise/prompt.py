"""Prompts: text, token ids, chat messages or sound, as a target reads them."""

from collections.abc import Mapping
from collections.abc import Sequence as Tokens
from typing import cast

import numpy as np
from numpy.typing import NDArray

from draftwise.chat_template import Message
from draftwise.checks import is_lone, whole_number
from draftwise.errors import OptionError, PromptError
from draftwise.models.base import LanguageModel, refuse_no_target
from draftwise.tokenizer import Tokenizer
from draftwise.types import Source

Prompt = str | Tokens[int] | Tokens[Message] | NDArray[np.floating]
NO_PROMPT = "the prompt is none of text, token ids and chat messages; give one."
EMPTY_PROMPT = "the prompt is empty; give at least one character or one token."


def opening(target: LanguageModel, prompt: Prompt) -> tuple[list[int], Source | None]:
    """The token ids that a sequence begins with, and what the target's encoder, if it has one, reads."""
    refuse_no_target(target)
    if target.encoder is None:
        return encode_prompt(target, prompt), None
    is_sound = isinstance(prompt, np.ndarray) and prompt.dtype.kind == "f"
    source = cast(NDArray[np.floating], prompt) if is_sound else tuple(encode_prompt(target, prompt))
    target.encoder.check(source)
    return list(target.encoder.start_ids), source


def encode_prompt(target: LanguageModel, prompt: Prompt) -> list[int]:
    """The token ids of a prompt: text and chat messages go through the target's tokenizer, as its input."""
    return _encode(target, prompt, target.tokenizer and target.tokenizer.source)


def encode_output(target: LanguageModel, output: str | Tokens[int]) -> list[int]:
    """The token ids of what the target may write; the errors are those of `encode_prompt`."""
    return _encode(target, output, target.tokenizer)


def _encode(target: LanguageModel, prompt: Prompt, tokenizer: Tokenizer | None) -> list[int]:
    if isinstance(prompt, bytes | Mapping) or is_lone(prompt) or not hasattr(prompt, "__getitem__"):
        raise PromptError(NO_PROMPT)
    if len(prompt) == 0:
        raise PromptError(EMPTY_PROMPT)
    if isinstance(prompt, str) or all(isinstance(message, Mapping) for message in prompt):
        if tokenizer is None:
            raise PromptError(f"{target.name} has no tokenizer; give the prompt as token ids.")
        _refuse_wordless(prompt, tokenizer)
        token_ids = (
            tokenizer.encode(prompt)
            if isinstance(prompt, str)
            else tokenizer.encode_chat(cast(Tokens[Message], prompt))
        )
    else:
        try:
            token_ids = [whole_number("a token id", token_id) for token_id in cast(Tokens[int], prompt)]
        except OptionError:
            raise PromptError(NO_PROMPT) from None
    if not token_ids:
        raise PromptError("the prompt has no tokens; give at least one.")
    outside = next((token_id for token_id in token_ids if not 0 <= token_id < target.vocab_size), None)
    if outside is not None:
        raise PromptError(f"token id {outside} is outside {target.name}'s vocabulary of {target.vocab_size}.")
    return token_ids


def _refuse_wordless(prompt: Prompt, tokenizer: Tokenizer) -> None:
    """Raise PromptError for text or messages that are empty, or special tokens and nothing else."""
    texts = (
        [prompt]
        if isinstance(prompt, str)
        else [message.get("content") for message in cast(Tokens[Message], prompt)]
    )
    if not any(texts):
        raise PromptError(EMPTY_PROMPT)
    if not any(tokenizer.decode(tokenizer.encode(text)) if isinstance(text, str) else text for text in texts):
        raise PromptError(
            "the prompt is special tokens and nothing else; give at least one character of text."
        )
