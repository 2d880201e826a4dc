"""The state of every model whose logits are a function of the last few tokens: tables and counts."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from draftwise.errors import ModelError
from draftwise.types import Logits, Source


class ContextModel(Protocol):
    """What such a model has to say."""

    name: str
    vocab_size: int

    @property
    def context_length(self) -> int:
        """How many tokens the next one depends on."""
        ...

    def logits_after(self, context: Sequence[int]) -> Logits:
        """Logits `[vocabulary]` after `context`: the last `context_length` tokens, or all there are."""
        ...


class ContextState:
    """For each row the context at each cache slot: the last tokens of the path that ends there."""

    def __init__(self, model: ContextModel, num_sequences: int, max_length: int) -> None:
        self._model = model
        self._max_length = max_length
        self._slots: list[list[tuple[int, ...]]] = [[] for _ in range(num_sequences)]

    @property
    def lengths(self) -> list[int]:
        return [len(slots) for slots in self._slots]

    def forward(
        self,
        token_ids: Sequence[Sequence[int]],
        num_logits: Sequence[int],
        parents: Sequence[Sequence[int] | None] | None = None,
    ) -> list[Logits]:
        """As the protocol says; raises ModelError for a token outside the vocabulary and for a full cache."""
        parents = parents or [None] * len(token_ids)
        for slots, tokens in zip(self._slots, token_ids, strict=True):
            self._check(slots, tokens)
        return [
            self._forward(slots, tokens, count, tree or range(-1, len(tokens) - 1))
            for slots, tokens, count, tree in zip(self._slots, token_ids, num_logits, parents, strict=True)
        ]

    def _forward(
        self, slots: list[tuple[int, ...]], token_ids: Sequence[int], num_logits: int, parents: Sequence[int]
    ) -> Logits:
        model, held = self._model, len(slots)
        for token_id, parent in zip(token_ids, parents, strict=True):
            slot = held + parent
            path = (*(slots[slot] if slot >= 0 else ()), token_id)
            slots.append(path[max(0, len(path) - model.context_length) :])
        recent = slots[len(slots) - num_logits :]
        rows = [model.logits_after(context) for context in recent]
        return np.array(rows).reshape(num_logits, model.vocab_size)

    def _check(self, slots: Sequence[tuple[int, ...]], token_ids: Sequence[int]) -> None:
        """Before any row is touched: a refusal leaves the cache as it was."""
        model = self._model
        if len(slots) + len(token_ids) > self._max_length:
            raise ModelError(
                f"{model.name} holds {len(slots)} of {self._max_length} tokens; "
                f"{len(token_ids)} more do not fit."
            )
        outside = next((token_id for token_id in token_ids if not 0 <= token_id < model.vocab_size), None)
        if outside is not None:
            raise ModelError(
                f"token id {outside} is outside {model.name}'s vocabulary of {model.vocab_size}."
            )

    def begin(self, row: int, source: Source | None) -> None:
        self.keep(row, 0)

    def copy(self, row: int, to: int) -> None:
        self._slots[to] = self._slots[row].copy()

    def keep(self, row: int, length: int) -> None:
        del self._slots[row][length:]

    def keep_path(self, row: int, length: int, path: Sequence[int]) -> None:
        slots = self._slots[row]
        slots[length:] = [slots[slot] for slot in path]

    def close(self) -> None:
        """Nothing to release."""
