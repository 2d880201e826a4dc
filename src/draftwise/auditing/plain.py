"""What plain decoding computes after any text, and how far an engine's numbers move with a pass's width."""

from collections.abc import Sequence as Tokens
from contextlib import closing

import numpy as np

from draftwise.drafters.draft_model import num_shared
from draftwise.models.base import LanguageModel
from draftwise.sequence import Sequence
from draftwise.types import Logits, Probs


class PlainReader:
    """Reads a prompt in one pass and what follows token by token, as decoding without drafts does.

    `sequence`: one at its start. `output_ids`: what follows its prompt, in any order of calls.
    """

    def __init__(self, target: LanguageModel, sequence: Sequence) -> None:
        self._prompt_ids = list(sequence.token_ids)
        self._sampler = sequence.sampler
        self._held: list[int] = []
        self._logits: Logits = np.empty(0)  # after all that is held
        self._state = target.open(1, sequence.max_length)
        self._state.begin(0, sequence.source)

    def logits(self, output_ids: Tokens[int]) -> Logits:
        """The target's logits `[vocabulary]` after an output."""
        text = [*self._prompt_ids, *output_ids]
        if text == self._held:
            return self._logits
        held = min(num_shared(self._held, text), len(text) - 1)
        if held < len(self._prompt_ids):
            held = 0
        self._state.keep(0, held)
        ends = range(max(held + 1, len(self._prompt_ids)), len(text) + 1)
        for start, end in zip([held, *ends], ends, strict=False):
            (logits,) = self._state.forward([text[start:end]], [1])
        self._held, self._logits = text, logits[-1].copy()
        return self._logits

    def scores(self, output_ids: Tokens[int]) -> Logits:
        """The same after the controls of the sequence: the largest is what greedy decoding takes."""
        return self._sampler.after(output_ids).controlled(self.logits(output_ids))

    def probs(self, output_ids: Tokens[int]) -> Probs:
        """The adjusted distribution `[vocabulary]` of the next token."""
        return self._sampler.after(output_ids).probs(self.logits(output_ids))

    def close(self) -> None:
        self._state.close()


def largest_difference(one: Logits, other: Logits) -> float:
    """Between two arrays of logits or probabilities; 0 where both ban a token."""
    with np.errstate(invalid="ignore"):
        return float(np.where(one == other, 0.0, np.abs(one - other)).max())


def noise(target: LanguageModel, sequence: Sequence, output_ids: Tokens[int], width: int) -> float:
    """How far a logit moves at most when an output is read token by token, `width` at a time, and at once."""
    narrow, middle, wide = (
        _read_by(each, target, sequence, output_ids) for each in (1, width, len(output_ids))
    )
    return max(largest_difference(narrow, middle), largest_difference(narrow, wide))


def _read_by(width: int, target: LanguageModel, sequence: Sequence, output_ids: Tokens[int]) -> Logits:
    """The logits `[len(output_ids), vocabulary]` after each token, from passes of one width."""
    with closing(target.open(1, sequence.max_length)) as state:
        state.begin(0, sequence.source)
        state.forward([sequence.token_ids], [1])
        chunks = [list(output_ids[start : start + width]) for start in range(0, len(output_ids), width)]
        return np.concatenate([state.forward([chunk], [len(chunk)])[0].copy() for chunk in chunks])
