"""Each token's own position, for decoders that would count positions on from the length of their cache."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.functional import embedding

from draftwise.errors import UnsupportedError
from draftwise.models.torch.architecture import UNLIMITED
from draftwise.models.torch.feed import Piece


class Positions:
    """Where positions enter a stack of layers: a table that is added to the embeddings, or a bias that is
    added to the scores.

    Raises UnsupportedError where they enter by neither.
    """

    def __init__(self, stack: nn.Module, name: str) -> None:
        modules = dict(stack.named_modules())
        table = modules.get("embed_positions")
        self._table = table if isinstance(table, nn.Embedding) else None
        self._biased = [
            module for module in modules.values() if getattr(module, "has_relative_attention_bias", False)
        ]
        if not self._table and not self._biased:
            raise UnsupportedError(
                f"{name} has its positions neither in a table nor in a bias of its scores; give a model of "
                "another architecture, such as T5, BART, Marian or Whisper."
            )

    @property
    def max_length(self) -> int:
        """For how many tokens there are positions."""
        return UNLIMITED if self._table is None else self._table.num_embeddings - _offset(self._table)

    @contextmanager
    def of(self, piece: Piece, device: torch.device) -> Iterator[None]:
        """Have one run of the stack see the positions of this piece."""
        positions = torch.as_tensor(piece.positions, device=device)
        with ExitStack() as hooks:
            if self._table is not None:
                rows = embedding(positions + _offset(self._table), self._table.weight)
                hooks.callback(self._table.register_forward_hook(lambda *call: rows).remove)
            if self._biased:
                slots = piece.overlay.slot_positions if piece.overlay else torch.arange(piece.view)[None]
                distances = torch.as_tensor(slots, device=device)[:, None] - positions[..., None]
            for module in self._biased:
                given = {"position_bias": _bias(module, distances)}
                hook = module.register_forward_pre_hook(
                    lambda _, args, named, given=given: (args, {**named, **given}), with_kwargs=True
                )
                hooks.callback(hook.remove)
            yield


def _offset(table: nn.Embedding) -> int:
    """How many rows of the table come before that of position 0; BART has two."""
    return int(getattr(table, "offset", 0))


def _bias(module: Any, distances: torch.Tensor) -> torch.Tensor:
    """What T5 adds to the scores `[rows, heads, width, view]`, from how far each key is from each query."""
    buckets = module._relative_position_bucket(
        distances,
        bidirectional=False,
        num_buckets=module.relative_attention_num_buckets,
        max_distance=module.relative_attention_max_distance,
    )
    bias: torch.Tensor = module.relative_attention_bias(buckets).permute(0, 3, 1, 2)
    return bias
