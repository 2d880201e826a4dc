"""The cache of a drafter's own layers, which are fed hidden states beside the tokens."""

from collections.abc import Callable, Sequence

import torch

from draftwise.models.torch.architecture import Horizon
from draftwise.models.torch.cache import RowCache, Window
from draftwise.models.torch.feed import VIEW_STEP, Feed, Piece, cut
from draftwise.models.torch.mask import attention_masks

PIECE_WIDTH = 512  # tokens of a row at once: bounds the memory that a long prompt takes
_SEES_ALL: dict[str, Horizon] = {"full_attention": torch.zeros_like}

# Token ids, hidden states, positions, mask and cache of a piece, `[rows, width, ...]`, to hidden states.
Run = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, RowCache], torch.Tensor]


class LayerCache:
    """Keys and values of several rows: each advances on its own, and goes back by holding fewer entries."""

    def __init__(self, run: Run, num_sequences: int, max_length: int, device: torch.device) -> None:
        self._run = run
        self._device = device
        self._num_slots = -(-(max_length + 1) // VIEW_STEP) * VIEW_STEP  # one at least is for padding
        self._cache = RowCache(num_sequences, self._num_slots)
        self._lengths = [0] * num_sequences

    @property
    def lengths(self) -> Sequence[int]:
        """Entries held for each row."""
        return tuple(self._lengths)

    def forward(
        self,
        token_ids: Sequence[Sequence[int]],
        hidden: Sequence[torch.Tensor | None],
        parents: Sequence[Sequence[int] | None] | None = None,
    ) -> list[torch.Tensor]:
        """Append entries to each row and return what the layers make of them, `[entries, width]`.

        `hidden`: of each entry, `[entries, width]`; None for a row that is left alone. `parents`: as
        `ModelState.forward` takes them.
        """
        trees = parents or [None] * len(token_ids)
        feeds = [
            Feed.of(length, ids, 0, tree)
            for length, ids, tree in zip(self._lengths, token_ids, trees, strict=True)
        ]
        made: list[list[torch.Tensor]] = [[] for _ in feeds]
        for piece in cut(feeds, PIECE_WIDTH, self._num_slots):
            part = slice(piece.begin, piece.begin + PIECE_WIDTH)
            beside = [None if row is None else row[part] for row in hidden[piece.rows]]
            for parts, new in zip(made[piece.rows], self._run_piece(piece, beside), strict=True):
                parts.append(new)
        self._lengths = [feed.end for feed in feeds]
        empty = torch.empty(0, device=self._device)
        return [
            torch.cat(parts)[: len(feed)] if len(feed) else empty
            for parts, feed in zip(made, feeds, strict=True)
        ]

    def _run_piece(self, piece: Piece, hidden: Sequence[torch.Tensor | None]) -> torch.Tensor:
        device = self._device
        self._cache.window = Window(piece.rows, torch.as_tensor(piece.slots, device=device), piece.view)
        some = next(row for row in hidden if row is not None)
        padded = some.new_zeros(*piece.token_ids.shape, some.shape[-1])
        for row, states in enumerate(hidden):
            if states is not None:
                padded[row, : len(states)] = states
        mask = attention_masks(piece, _SEES_ALL, device, None)
        assert isinstance(mask, torch.Tensor)  # there is one kind of layer
        token_ids, positions = (
            torch.as_tensor(each, device=device) for each in (piece.token_ids, piece.positions)
        )
        return self._run(token_ids, padded, positions, mask, self._cache)

    def keep(self, row: int, length: int) -> None:
        """Hold the first `length` entries of the row and forget the rest."""
        self._lengths[row] = length

    def close(self) -> None:
        """Release the buffers; idempotent."""
        self._cache, self._lengths = RowCache(0, 0), []
