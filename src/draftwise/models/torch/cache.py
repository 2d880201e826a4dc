"""One cache for chains, trees, batches and going back: fixed buffers, each row written at its own slots."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin


@dataclass(frozen=True, slots=True)
class Window:
    """What one pass touches: of `rows` it writes the slots `[rows, width]` and reads the first `view`."""

    rows: slice
    slots: torch.Tensor
    view: int


class RowLayer(CacheLayerMixin):
    """Keys and values of one layer, `[rows, kv heads, slots, head_dim]`, allocated when first written."""

    def __init__(self, num_rows: int, num_slots: int) -> None:
        super().__init__()
        self.num_rows, self.num_slots = num_rows, num_slots

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate for the heads, width, dtype and device of these states."""
        # Zeros, not whatever was there: attention weighs a masked slot by 0, and 0 times NaN is NaN.
        self.keys, self.values = (
            states.new_zeros(self.num_rows, states.shape[1], self.num_slots, states.shape[3])
            for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write states `[rows, kv heads, width, head_dim]` at the window's slots; return what it reads."""
        window: Window = args[0]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        keys, values = self.keys[window.rows], self.values[window.rows]
        slots = window.slots.to(keys.device)
        rows = torch.arange(len(slots), device=keys.device)[:, None]
        keys[rows, :, slots] = key_states.transpose(1, 2)
        values[rows, :, slots] = value_states.transpose(1, 2)
        return keys[:, :, : window.view], values[:, :, : window.view]

    def move(self, row: int, sources: Sequence[int], start: int) -> None:
        """Copy what the slots `sources` of a row hold to the slots from `start` on."""
        for buffer in (self.keys, self.values):
            taken = torch.tensor(sources, dtype=torch.long, device=buffer.device)
            buffer[row, :, start : start + len(sources)] = buffer[row].index_select(1, taken)

    def copy(self, row: int, to: int, num_slots: int) -> None:
        """Copy what the first slots of a row hold to those of another row."""
        for buffer in (self.keys, self.values):
            buffer[to, :, :num_slots] = buffer[row, :, :num_slots]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.num_slots, 0

    def get_seq_length(self) -> int:
        return 0  # of no one row; positions and masks are always given

    def get_max_length(self) -> int:
        return self.num_slots


class RowCache(Cache):
    """A transformers cache whose rows advance unevenly and go back freely.

    It is buffers and nothing else. Which slots of a row are valid is the caller's to know and the mask's to
    say, so nothing is copied, cropped or re-padded when rows part.
    """

    def __init__(self, num_rows: int, num_slots: int) -> None:
        super().__init__(layer_class_to_replicate=partial(RowLayer, num_rows, num_slots))
        self.window: Window | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write one layer's new states where the current window says; return what the pass reads."""
        keys, values = super().update(key_states, value_states, layer_idx, self.window)
        return keys, values

    def move(self, row: int, sources: Sequence[int], start: int) -> None:
        """Copy what the slots `sources` of a row hold to the slots from `start` on, in every layer."""
        for layer in self.layers:
            layer.move(row, sources, start)

    def copy(self, row: int, to: int, num_slots: int) -> None:
        """Copy what the first slots of a row hold to those of another row, in every layer."""
        for layer in self.layers:
            layer.copy(row, to, num_slots)
