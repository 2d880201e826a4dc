"""A smaller language model guesses: it drafts one token after another (2211.17192, Algorithm 1)."""

from collections.abc import Sequence

import numpy as np

from draftwise.errors import OptionError, TokenizerMismatchError
from draftwise.models.base import LanguageModel, ModelState
from draftwise.randomness import Randomness
from draftwise.sampling import SamplingParams, adjusted_probs
from draftwise.types import Draft, Logits, Probs, Step


class DraftModel:
    """Any language model that shares the target's tokenizer, as a drafter.

    `num_draft_tokens`: how many tokens it drafts where the caller does not say. Raises OptionError below 1.
    """

    def __init__(self, model: LanguageModel, name: str | None = None, num_draft_tokens: int = 4) -> None:
        if num_draft_tokens < 1:
            raise OptionError(f"num_draft_tokens is {num_draft_tokens}; give at least 1.")
        self.model = model
        self.name = name or model.name
        self.default_num_draft_tokens = num_draft_tokens

    def open(self, target: LanguageModel, num_sequences: int, max_length: int) -> "DraftModelState":
        """Start drafting for `target`. Raises TokenizerMismatchError where a token id means two things.

        A model without a tokenizer is taken to share the target's. Vocabularies may differ in size: what one
        has beyond the other is padding.
        """
        model = self.model
        if target.tokenizer and model.tokenizer:
            difference = target.tokenizer.difference(model.tokenizer)
            if difference:
                raise TokenizerMismatchError(
                    f"{self.name} cannot draft for {target.name}, as their tokenizers differ ({difference}); "
                    "take a draft model with the target's tokenizer."
                )
        capacity = min(max_length, model.max_length)
        cache = model.open(num_sequences, capacity, width_invariant=False)
        return DraftModelState(cache, capacity, model.vocab_size, target.vocab_size, num_sequences)


class DraftModelState:
    """A cache of the draft model that follows each row's context, and goes back over its own rejected tokens.

    Where a context has outgrown the draft model, its drafts are empty.
    """

    def __init__(
        self, cache: ModelState, capacity: int, vocab_size: int, target_vocab_size: int, num_sequences: int
    ) -> None:
        self._cache = cache
        self._capacity = capacity
        self._vocab_size = vocab_size
        self._target_vocab_size = target_vocab_size
        # For each row: how much of its context has been read, and what was drafted there. The cache holds the
        # first and then the second, but for its last token.
        self._read = [0] * num_sequences
        self._drafted: list[list[int]] = [[] for _ in range(num_sequences)]

    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[int],
        sampling: Sequence[SamplingParams],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        lengths = [
            max(0, min(limit, self._capacity + 1 - len(context)))  # the last token drafted is not fed
            for context, limit in zip(contexts, limits, strict=True)
        ]
        feeds = [self._catch_up(row, contexts[row]) if length else [] for row, length in enumerate(lengths)]
        drafted: list[list[int]] = [[] for _ in contexts]
        drawn_from: list[list[Probs]] = [[] for _ in contexts]
        while any(feeds):
            logits = self._cache.forward(feeds, [1 if feed else 0 for feed in feeds])
            for row in [row for row, feed in enumerate(feeds) if feed]:
                token_id, probs = self._draw(logits[row][-1], sampling[row], randomness[row])
                drafted[row].append(token_id)
                if probs is not None:
                    drawn_from[row].append(probs)
                feeds[row] = [token_id] if len(drafted[row]) < lengths[row] else []
        for row, token_ids in enumerate(drafted):
            if token_ids:
                self._read[row], self._drafted[row] = len(contexts[row]), token_ids
        return [
            Draft(tuple(token_ids), probs or None)
            for token_ids, probs in zip(drafted, drawn_from, strict=True)
        ]

    def _catch_up(self, row: int, context: Sequence[int]) -> list[int]:
        """Go back to what the cache and the context share; return the tokens of the context after that."""
        read, drafted = self._read[row], self._drafted[row]
        emitted = context[read : read + len(drafted)]
        rejected_at = (i for i, (a, b) in enumerate(zip(drafted, emitted, strict=False)) if a != b)
        accepted = next(rejected_at, len(drafted))
        # The cache lacks the last token drafted, and one token is always fed, for its logits.
        self._cache.keep(row, min(read + accepted, self._cache.lengths[row], len(context) - 1))
        tail = context[self._cache.lengths[row] :]
        # Padding that the target emitted may lie beyond this model's vocabulary. Reading its last token there
        # makes a worse guess, which is still an exact one.
        return [min(token_id, self._vocab_size - 1) for token_id in tail]

    def _draw(
        self, logits: Logits, sampling: SamplingParams, randomness: Randomness
    ) -> tuple[int, Probs | None]:
        """One token, and what it was drawn from; the target's vocabulary may be the narrower one."""
        logits = logits[: self._target_vocab_size]
        if sampling.temperature == 0:
            # A point mass either way; saying so spares the verification a row as wide as the vocabulary.
            return int(np.argmax(logits)), None
        probs = adjusted_probs(logits, sampling)
        return randomness.sample(probs), probs

    def observe(self, step: Step) -> None:
        """Nothing to learn: the contexts say what was accepted."""

    def close(self) -> None:
        self._cache.close()
