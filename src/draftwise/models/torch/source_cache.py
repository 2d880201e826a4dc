"""The cache of a decoder behind an encoder: its own text, and what the encoder made of each row's source."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import pad
from transformers import Cache, EncoderDecoderCache

from draftwise.models.torch.cache import RowCache, Window


@dataclass(slots=True)
class SourceLayer:
    """Keys and values `[rows, heads, tokens, head_dim]` of the sources of the rows in a pass."""

    keys: torch.Tensor
    values: torch.Tensor


class SourceCache(EncoderDecoderCache):
    """A RowCache, and beside it the keys and values of sources, written once for each row.

    There is room for the longest source so far; how much of it a row uses is the mask's to say.
    """

    def __init__(self, num_rows: int, num_slots: int) -> None:
        super().__init__(RowCache(num_rows, num_slots), Cache(layers=[]))
        self.source_lengths = [0] * num_rows
        # For each layer `[keys and values, rows, heads, tokens, head_dim]`.
        self._sources: list[torch.Tensor] = []

    @property
    def source_slots(self) -> int:
        """How many tokens of a source there is room for."""
        return self._sources[0].shape[3] if self._sources else 0

    @property
    def window(self) -> Window | None:
        """What a pass touches, of texts and of sources."""
        window: Window | None = self.self_attention_cache.window
        return window

    @window.setter
    def window(self, window: Window) -> None:
        self.self_attention_cache.window = window
        self.cross_attention_cache.layers = [
            SourceLayer(keys[window.rows], values[window.rows]) for keys, values in self._sources
        ]

    def read(self, row: int, layers: Sequence[torch.Tensor]) -> None:
        """Take over, for each layer, the keys and values `[2, heads, tokens, head_dim]` of a row's source."""
        if not self._sources:
            num_rows = len(self.source_lengths)
            self._sources = [
                layer.new_zeros(2, num_rows, layer.shape[1], 0, layer.shape[3]) for layer in layers
            ]
            self.is_updated = dict.fromkeys(range(len(layers)), True)
        length = layers[0].shape[2]
        more = max(0, length - self.source_slots)
        self._sources = [pad(layer, (0, 0, 0, more)) for layer in self._sources]
        for buffer, layer in zip(self._sources, layers, strict=True):
            buffer[:, row, :, :length] = layer
        self.source_lengths[row] = length

    def copy(self, row: int, to: int, num_slots: int) -> None:
        """Copy what the first slots of a row's text hold, and its source, to another row."""
        self.self_attention_cache.copy(row, to, num_slots)
        for buffer in self._sources:
            buffer[:, to] = buffer[:, row]
        self.source_lengths[to] = self.source_lengths[row]

    def move(self, row: int, sources: Sequence[int], start: int) -> None:
        """Copy what the slots `sources` of a row's text hold to the slots from `start` on, in every layer."""
        self.self_attention_cache.move(row, sources, start)
