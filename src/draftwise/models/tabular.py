"""An exact little language model: a table of logits for each context, for tests and teaching."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from draftwise.errors import ModelError
from draftwise.tokenizer import Tokenizer
from draftwise.types import Logits


class TabularModel:
    """A Markov chain of any order: the logits are a float64 function of the last `order` tokens.

    `table`: `[vocabulary] * order + [vocabulary]`; `table[a, b]` holds the logits that follow tokens a, b.
    Where fewer tokens than `order` came before, token 0 stands for those that are missing. Raises ModelError
    for a table of another shape.
    """

    def __init__(
        self,
        table: ArrayLike,
        *,
        name: str = "tabular",
        max_length: int = 1 << 20,
        eos_token_ids: Iterable[int] = (),
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.table: NDArray[np.float64] = np.asarray(table, np.float64)
        if not self.table.ndim or len(set(self.table.shape)) > 1:
            raise ModelError(
                f"a table of shape {self.table.shape} is no model; every axis is the vocabulary."
            )
        self.name = name
        self.vocab_size = self.table.shape[-1]
        self.max_length = max_length
        self.eos_token_ids = frozenset(eos_token_ids)
        self.tokenizer = tokenizer

    @classmethod
    def random(
        cls, vocab_size: int, order: int = 1, seed: int = 0, *, scale: float = 1.0, **options: Any
    ) -> "TabularModel":
        """Independent normal logits of standard deviation `scale` for each context."""
        table = np.random.default_rng(seed).normal(0.0, scale, (vocab_size,) * (order + 1))
        return cls(table, **options)

    @classmethod
    def from_probs(cls, probs: ArrayLike, **options: Any) -> "TabularModel":
        """A model with these transition probabilities, such as a matrix `[vocabulary, vocabulary]`."""
        with np.errstate(divide="ignore"):  # what cannot follow has logit -inf
            return cls(np.log(np.asarray(probs, np.float64)), **options)

    @property
    def order(self) -> int:
        """How many tokens the next one depends on."""
        return self.table.ndim - 1

    def open(self, num_sequences: int, max_length: int, *, width_invariant: bool = True) -> "TabularState":
        return TabularState(self, num_sequences, max_length)


class TabularState:
    """For each row the context at each cache slot: the last `order` tokens of the path that ends there."""

    def __init__(self, model: TabularModel, num_sequences: int, max_length: int) -> None:
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
        return [
            self._forward(slots, tokens, count, tree or range(-1, len(tokens) - 1))
            for slots, tokens, count, tree in zip(self._slots, token_ids, num_logits, parents, strict=True)
        ]

    def _forward(
        self, slots: list[tuple[int, ...]], token_ids: Sequence[int], num_logits: int, parents: Sequence[int]
    ) -> Logits:
        model, held = self._model, len(slots)
        if held + len(token_ids) > self._max_length:
            raise ModelError(
                f"{model.name} holds {held} of {self._max_length} tokens; {len(token_ids)} more do not fit."
            )
        nothing = (0,) * model.order
        for token_id, parent in zip(token_ids, parents, strict=True):
            if not 0 <= token_id < model.vocab_size:
                raise ModelError(
                    f"token id {token_id} is outside {model.name}'s vocabulary of {model.vocab_size}."
                )
            slot = held + parent
            path = (*(slots[slot] if slot >= 0 else nothing), token_id)
            slots.append(path[len(path) - model.order :])
        recent = slots[len(slots) - num_logits :]
        return np.array([model.table[context] for context in recent]).reshape(num_logits, model.vocab_size)

    def keep(self, row: int, length: int) -> None:
        del self._slots[row][length:]

    def keep_path(self, row: int, length: int, path: Sequence[int]) -> None:
        slots = self._slots[row]
        slots[length:] = [slots[slot] for slot in path]

    def close(self) -> None:
        """Nothing to release."""
