"""Where greedy speculative output parts from greedy plain output, and by how little."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from draftwise.auditing.plain import PlainReader
from draftwise.drafters.draft_model import num_shared


@dataclass(frozen=True, slots=True)
class Parting:
    """The first token that speculative decoding put where plain decoding puts another one."""

    prompt: int  # the number of the prompt, from 0
    position: int  # tokens of the output before it
    gap: float  # between the two largest logits there
    deficit: float  # of the speculative token's logit from the largest; at least the gap


def greedy_output(reader: PlainReader, max_new_tokens: int, eos_token_ids: Collection[int]) -> list[int]:
    """What plain decoding makes of a prompt, put together from the target's passes alone."""
    output: list[int] = []
    while len(output) < max_new_tokens and (not output or output[-1] not in eos_token_ids):
        output.append(int(reader.scores(output).argmax()))
    return output


def parting(
    reader: PlainReader, prompt: int, plain: Sequence[int], speculative: Sequence[int]
) -> Parting | None:
    """Compare two outputs of one prompt, the reader's; None where they are equal."""
    position = num_shared(plain, speculative)
    if position == max(len(plain), len(speculative)):
        return None
    scores = reader.scores(plain[:position])
    best, second = np.sort(scores)[:-3:-1]
    other = scores[speculative[position]] if position < len(speculative) else -np.inf
    return Parting(prompt, position, float(best - second), float(best - other))
