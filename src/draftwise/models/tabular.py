"""An exact little language model: a table of logits for each context, for tests and teaching."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from draftwise.errors import ModelError
from draftwise.models.base import Encoder, Tap, refuse_taps
from draftwise.models.context import ContextState
from draftwise.tokenizer import Tokenizer
from draftwise.types import Logits


class TabularModel:
    """A Markov chain of any order: the logits are a float64 function of the last `order` tokens.

    `table`: `[vocabulary] * order + [vocabulary]`; `table[a, b]` holds the logits that follow tokens a, b.
    Where fewer tokens than `order` came before, token 0 stands for those that are missing. Raises ModelError
    for a table of another shape.
    """

    width_invariant = True
    scores_trees = True
    only_drafts = False
    rows_share_passes = False
    encoder: Encoder | None = None

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
    def context_length(self) -> int:
        """The order: how many tokens the next one depends on."""
        return self.table.ndim - 1

    def logits_after(self, context: Sequence[int]) -> Logits:
        """Logits `[vocabulary]` of the token after `context`, of which the last `order` tokens matter."""
        order = self.context_length
        padded = (*(0,) * order, *context)
        logits: Logits = self.table[padded[len(padded) - order :]]
        return logits

    def open(
        self, num_sequences: int, max_length: int, *, width_invariant: bool = True, taps: Sequence[Tap] = ()
    ) -> ContextState:
        """Open a state; raises UnsupportedError for taps, as there are no hidden states."""
        refuse_taps(taps, self.name)
        return ContextState(self, num_sequences, max_length)
