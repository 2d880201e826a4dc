"""The controls once more, token by token, to compare with; and what a target says under them."""

import math
from collections.abc import Callable, Collection, Sequence
from itertools import product
from re import fullmatch

from draftwise.sampling import SamplingParams
from draftwise.types import Logits
from tests.enumeration import Law, Tokens

Naive = Callable[[Tokens, Logits], Logits]


def naive(params: SamplingParams, num_prompt_tokens: int, ends: Collection[int] = ()) -> Naive:
    """What `params` ask for, but processors and grammar."""

    def control(tokens: Tokens, logits: Logits) -> Logits:
        output = tokens[num_prompt_tokens:]
        for token_id in range(len(logits)):
            logits[token_id] += params.logit_bias.get(token_id, 0.0)
            if token_id in tokens:
                sign = -1 if logits[token_id] < 0 else 1
                logits[token_id] *= params.repetition_penalty**-sign
            if token_id in output:
                logits[token_id] -= params.presence_penalty
            for _ in range(output.count(token_id)):
                logits[token_id] -= params.frequency_penalty
            if len(output) < params.min_new_tokens and token_id in ends:
                logits[token_id] = -math.inf
            for each in params.banned:
                banned = tuple(each) if isinstance(each, Sequence) else (each,)
                if (*tokens, token_id)[-len(banned) :] == banned:
                    logits[token_id] = -math.inf
        return logits

    return control


def matching(pattern: str, pieces: Sequence[str], eos: int, num_prompt_tokens: int, longest: int) -> Naive:
    """Bans what a regular expression does not go on with, in a language without words over `longest`."""
    alphabet = sorted({letter for piece in pieces for letter in piece})
    words = {
        word
        for length in range(longest + 1)
        for letters in product(alphabet, repeat=length)
        if fullmatch(pattern, word := "".join(letters))
    }

    def control(tokens: Tokens, logits: Logits) -> Logits:
        output = tokens[num_prompt_tokens:]
        text = "".join(pieces[token_id] for token_id in output if token_id != eos)
        for token_id in range(len(logits)):
            if token_id == eos:
                goes_on = text in words
            else:
                piece = pieces[token_id] if token_id < len(pieces) else ""
                goes_on = bool(piece) and any(word.startswith(text + piece) for word in words)
            if not goes_on or (eos in output and token_id != eos):
                logits[token_id] = -math.inf
        return logits

    return control


def ended(law: Law, ends: Collection[int]) -> Law:
    """The law of the outputs that end with the first of some tokens."""
    cut: Law = {}
    for tokens, probability in law.items():
        length = next((at + 1 for at, token_id in enumerate(tokens) if token_id in ends), len(tokens))
        cut[tokens[:length]] = cut.get(tokens[:length], 0.0) + probability
    return cut
