"""Small drafters and a tokenizer, as plain as can be: a failure points at the code under test."""

import codecs
from collections.abc import Callable, Sequence
from itertools import takewhile

import numpy as np
import tokenizers

from draftwise.control.base import Limit
from draftwise.models.base import LanguageModel, Tap
from draftwise.models.tabular import TabularModel
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler, SamplingParams
from draftwise.tokenizer import Detokenizer, Tokenizer
from draftwise.types import Draft, Probs, Source, Step


class RowDrafter:
    """A drafter that remembers nothing: it drafts for each row from its context alone."""

    name = "fake"
    default_num_draft_tokens = 2
    taps: Sequence[Tap] = ()

    def open(self, target: LanguageModel, num_sequences: int, max_length: int) -> "RowDrafter":
        self.target_vocab_size = target.vocab_size
        return self

    def begin(self, row: int, source: Source | None) -> None:
        """Nothing to forget."""

    def confidence(self, row: int, context: Sequence[int]) -> float | None:
        return None

    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[Limit],
        samplers: Sequence[Sampler],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        return [self.draft(*row) for row in zip(contexts, limits, samplers, randomness, strict=True)]

    def draft(self, context: Sequence[int], limit: Limit, sampler: Sampler, randomness: Randomness) -> Draft:
        raise NotImplementedError

    def observe(self, step: Step) -> None:
        """Nothing to learn."""

    def close(self) -> None:
        """Nothing to release."""


class SamplingDrafter(RowDrafter):
    """Samples from a tabular model whose vocabulary may be narrower or wider than the target's.

    `go_on`: whether to draft one more token, given those drafted so far. `sampling`: instead of the row's.
    """

    def __init__(
        self,
        model: TabularModel,
        go_on: Callable[[Sequence[int]], bool] = lambda drafted: True,
        sampling: SamplingParams | None = None,
    ) -> None:
        self.model = model
        self.go_on = go_on
        self.sampling = sampling

    def draft(self, context: Sequence[int], limit: Limit, sampler: Sampler, randomness: Randomness) -> Draft:
        drafted: list[int] = []
        probs: list[Probs] = []
        while limit.allows(len(drafted)) and self.go_on(drafted):
            own = Sampler(self.sampling) if self.sampling else sampler.after(drafted)
            ahead = self.next_probs([*context, *drafted], own)
            if not limit.allows(len(drafted), float(ahead.max())):
                break
            probs.append(ahead)
            drafted.append(randomness.sample(ahead))
        return Draft(tuple(drafted), probs)

    def next_probs(self, tokens: Sequence[int], sampler: Sampler) -> Probs:
        """What to draw from: no token that the target lacks; any function of the tokens would be exact."""
        known = [min(token_id, self.model.vocab_size - 1) for token_id in tokens]
        logits = self.model.logits_after(known).copy()
        logits[self.target_vocab_size :] = -np.inf
        return sampler.probs(logits)


class BlockDrafter(RowDrafter):
    """Draws a whole block at once, each position on its own from a distribution given by the context."""

    def __init__(self, model: TabularModel) -> None:
        self.model = model

    def draft(self, context: Sequence[int], limit: Limit, sampler: Sampler, randomness: Randomness) -> Draft:
        probs: list[Probs] = []
        while limit.allows(len(probs)):
            at_position = [*context[1:], len(probs) % self.model.vocab_size]
            probs.append(sampler.probs(self.model.logits_after(at_position)))
        return Draft(tuple(randomness.sample(each) for each in probs), probs)


class GuessingDrafter(RowDrafter):
    """Drafts what a function of the context says, as a deterministic guess."""

    def __init__(self, guess: Callable[[Sequence[int]], Sequence[int]]) -> None:
        self.guess = guess

    def draft(self, context: Sequence[int], limit: Limit, sampler: Sampler, randomness: Randomness) -> Draft:
        guessed = enumerate(self.guess(context))
        return Draft(tuple(token_id for _, token_id in takewhile(lambda at: limit.allows(at[0]), guessed)))


class PieceTokenizer(Tokenizer):
    """Each token is the bytes of its place in a list; text is encoded one character at a time."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces
        self._source = None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [self.pieces.index(character.encode()) for character in text]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return b"".join(self.pieces[token_id] for token_id in token_ids).decode(errors="replace")

    def stream(self) -> Detokenizer:
        return PieceDetokenizer(self.pieces)


class PieceDetokenizer(Detokenizer):
    """Gives out each character when its last byte has come."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def step(self, token_id: int) -> str:
        return self._decoder.decode(self._pieces[token_id])

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


def byte_pairs(*tokens: str, eos: str | None = None) -> Tokenizer:
    """Byte-level BPE with these tokens, in the characters that such vocabularies write for bytes."""
    merges = [(one, other) for one in tokens for other in tokens if one + other in tokens]
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE({token: token_id for token_id, token in enumerate(tokens)}, merges)
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    if eos is not None:
        backend.add_special_tokens([eos])
    return Tokenizer(backend, name=" ".join(tokens), eos_token_ids=[len(tokens)] if eos else [])
