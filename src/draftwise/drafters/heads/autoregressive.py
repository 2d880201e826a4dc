"""Heads that draft token after token, each from the hidden state that they made up for the one before."""

from collections.abc import Sequence
from typing import Protocol

import torch

from draftwise.control.base import Limit
from draftwise.drafters.ahead import Next
from draftwise.drafters.heads.drafter import on_host
from draftwise.drafters.heads.layer_cache import LayerCache
from draftwise.drafters.heads.state import HeadState
from draftwise.models.torch.cache import RowCache
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler
from draftwise.types import Draft, Probs, Source


class FeatureHead(Protocol):
    """A decoder over pairs: the hidden state of a token, the target's or its own, and the token after it."""

    reads: tuple[int, ...]  # the target's hidden states, as `Tap.layers`

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """The target's hidden states, joined in the last dimension, as a hidden state of its own."""
        ...

    def __call__(
        self,
        token_ids: torch.Tensor,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor,
        cache: RowCache,
    ) -> torch.Tensor:
        """Pairs `[rows, entries]` to the hidden state of each pair's token; as `layer_cache.Run`."""
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states `[tokens, width]` to logits `[tokens, vocabulary of the target]`."""
        ...


class AutoregressiveState(HeadState):
    """A cache of pairs with true hidden states; those of a draft are forgotten, whatever became of it."""

    def __init__(self, head: FeatureHead, num_sequences: int, max_length: int, device: torch.device) -> None:
        super().__init__(head.reads, num_sequences)
        self._head = head
        self._cache = LayerCache(head, num_sequences, max_length, device)

    def begin(self, row: int, source: Source | None) -> None:
        super().begin(row, source)
        self._cache.keep(row, 0)

    @torch.inference_mode()
    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[Limit],
        samplers: Sequence[Sampler],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        drafted: list[list[int]] = [[] for _ in contexts]
        drawn_from: list[list[Probs]] = [[] for _ in contexts]
        hidden = self._read(contexts, limits)
        while any(last is not None for last in hidden):
            rows = [row for row, last in enumerate(hidden) if last is not None]
            logits = on_host(self._head.logits(torch.cat([last for last in hidden if last is not None])))
            goes_on = set()
            for row, row_logits in zip(rows, logits, strict=True):
                ahead = Next(row_logits, samplers[row].after(drafted[row]))
                if ahead.confidence and limits[row].allows(len(drafted[row]), ahead.confidence):
                    drafted[row].append(ahead.draw(randomness[row]))
                    if ahead.probs is not None:
                        drawn_from[row].append(ahead.probs)
                    if limits[row].allows(len(drafted[row])):
                        goes_on.add(row)
            hidden = self._feed(
                [drafted[row][-1:] if row in goes_on else [] for row in range(len(hidden))],
                [last if row in goes_on else None for row, last in enumerate(hidden)],
            )
        self._forget_drafts()
        return [
            Draft(tuple(token_ids), probs or None)
            for token_ids, probs in zip(drafted, drawn_from, strict=True)
        ]

    def _read(self, contexts: Sequence[Sequence[int]], limits: Sequence[Limit]) -> list[torch.Tensor | None]:
        """Feed what the target has read since, where a draft is asked for; as `_feed`."""
        feeds: list[Sequence[int]] = [()] * len(contexts)
        hidden: list[torch.Tensor | None] = [None] * len(contexts)
        for row in self._asked(contexts, limits):
            feeds[row] = contexts[row][self._features.num_read(row) + 1 :]
            hidden[row] = self._head.project(self._features.take(row))
        return self._feed(feeds, hidden)

    def _feed(
        self, token_ids: Sequence[Sequence[int]], hidden: Sequence[torch.Tensor | None]
    ) -> list[torch.Tensor | None]:
        """Feed pairs; return the hidden state `[1, width]` of each row's last one, None if none was fed."""
        made = self._cache.forward(token_ids, hidden)
        return [states[-1:] if feed else None for feed, states in zip(token_ids, made, strict=True)]

    def _forget_drafts(self) -> None:
        for row in range(len(self._cache.lengths)):
            self._cache.keep(row, self._features.num_read(row))

    def close(self) -> None:
        self._cache.close()
