"""DFlash (2602.06036): a whole block in one pass, by denoising masks beside the target's hidden states."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import (
    Qwen3DecoderLayer,
    Qwen3RMSNorm,
    Qwen3RotaryEmbedding,
    rotate_half,
)

from draftwise.drafters.growth import Shape
from draftwise.drafters.heads.backbone import Backbone
from draftwise.drafters.heads.block import BlockState
from draftwise.drafters.heads.checkpoint import Checkpoint
from draftwise.errors import ModelError
from draftwise.models.torch.cache import RowCache, Window
from draftwise.models.torch.feed import VIEW_STEP

Rotary = tuple[torch.Tensor, torch.Tensor]


class DFlashLayer(Qwen3DecoderLayer):
    """A Qwen3 layer in which the block looks at context that takes part as keys and values alone."""

    def __init__(self, config: Qwen3Config, index: int) -> None:
        super().__init__(config, index)
        kind = self.self_attn.layer_type
        stated = getattr(config, "is_causal", None)
        self.is_causal: bool = kind == "sliding_attention" if stated is None else bool(stated)

    def forward(
        self,
        context: torch.Tensor,
        block: torch.Tensor,
        positions: torch.Tensor,
        rotary: Rotary,
        cache: RowCache,
    ) -> torch.Tensor:
        """`context` `[rows, new, width]`, `block` `[rows, size, width]`, `positions` `[rows, new + size]`."""
        attention, normed = self.self_attn, self.input_layernorm(block)
        both = torch.cat([context, normed], dim=1)

        def heads(projected: torch.Tensor) -> torch.Tensor:
            split: torch.Tensor = projected.unflatten(-1, (-1, attention.head_dim))
            return split

        query = attention.q_norm(heads(attention.q_proj(normed))).transpose(1, 2)
        key = attention.k_norm(heads(attention.k_proj(both))).transpose(1, 2)
        value = heads(attention.v_proj(both)).transpose(1, 2)
        size = block.shape[1]
        query = _rotated(query, *(part[:, -size:] for part in rotary))
        key, value = cache.update(_rotated(key, *rotary), value, attention.layer_idx)
        mask = self._visible(positions[:, -size:, None], torch.arange(key.shape[2], device=key.device))
        mixed = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask[:, None], scale=attention.scaling, enable_gqa=True
        )
        hidden = block + attention.o_proj(mixed.transpose(1, 2).flatten(2))
        made: torch.Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return made

    def _visible(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Which of `keys` `[keys]` each query of the block `[rows, size, 1]` sees, by position.

        Nothing behind the block.
        """
        visible = keys <= (queries if self.is_causal else queries[:, -1:])
        if window := self.self_attn.sliding_window:
            visible = visible & ((queries - keys).abs() < window)
        return visible


def _rotated(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    turned: torch.Tensor = states * cos[:, None] + rotate_half(states) * sin[:, None]
    return turned


class DFlashHead(nn.Module):
    """Layers over [context | block]: hidden_norm(fc(features)) | the last token, and a mask for each guess.

    Embeddings and output layer are the target's.
    """

    def __init__(
        self,
        config: Qwen3Config,
        target: Backbone,
        rotary: Qwen3RotaryEmbedding,
        reads: tuple[int, ...],
        mask_token_id: int,
        size: int,
    ) -> None:
        super().__init__()
        width = config.hidden_size
        self.fc = nn.Linear(len(reads) * width, width, bias=False)
        self.hidden_norm = Qwen3RMSNorm(width, eps=config.rms_norm_eps)
        self.layers = nn.ModuleList(DFlashLayer(config, index) for index in range(config.num_hidden_layers))
        self.norm = Qwen3RMSNorm(width, eps=config.rms_norm_eps)
        self.reads = reads
        self.mask_token_id = mask_token_id
        self.block_size = size
        self.default_num_draft_tokens = size - 1
        # No parts of this module: it has no weights for them.
        self._shared = target, rotary

    def forward(
        self, features: torch.Tensor, block: torch.Tensor, positions: torch.Tensor, cache: RowCache
    ) -> torch.Tensor:
        """Logits `[rows, size - 1, vocabulary]` of the masked positions.

        `features` `[rows, new, width of all read]` of context that the cache does not hold, `block`
        `[rows, size]` token ids, `positions` `[rows, new + size]` of both.
        """
        target, rotary = self._shared
        context = self.hidden_norm(self.fc(features))
        hidden = nn.functional.embedding(block, target.embedding)
        turns = rotary(hidden, positions)
        for layer in self.layers:
            hidden = layer(context, hidden, positions, turns, cache)
        logits: torch.Tensor = target.output(self.norm(hidden)[:, 1:])
        return logits

    def open(self, num_sequences: int, max_length: int, tree: Shape | None) -> "DFlashState":
        """As `Method`."""
        target, _ = self._shared
        return DFlashState(self, num_sequences, max_length, target.device, tree)


class DFlashState(BlockState):
    """A cache of context; what a block writes behind it is written over by the next one.

    Guesses are drawn from each position's own distribution, with no regard to the other guesses.
    """

    draws = True

    def __init__(
        self, head: DFlashHead, num_sequences: int, max_length: int, device: torch.device, tree: Shape | None
    ) -> None:
        super().__init__(head.reads, num_sequences, tree)
        self._head = head
        self._device = device
        # One slot at least is for padding.
        self._num_slots = -(-(max_length + head.block_size + 1) // VIEW_STEP) * VIEW_STEP
        self._cache = RowCache(num_sequences, self._num_slots)

    def _logits(self, rows: Sequence[int], contexts: Sequence[Sequence[int]]) -> torch.Tensor:
        """One pass over the rows from the first asked to the last: new context, padding, and a block."""
        size, first = self._head.block_size, rows[0]
        starts = [self._features.num_read(row) for row in rows]
        taken = [self._features.take(row) for row in rows]
        longest = max(map(len, taken))
        shape = (rows[-1] + 1 - first, longest + size)
        features = taken[0].new_zeros(shape[0], longest, taken[0].shape[1])
        block = np.full((shape[0], size), self._head.mask_token_id)
        # Padding, and all of a row that is not asked, stands at position 0 and is written where nobody reads.
        positions, slots = np.zeros(shape, np.int64), np.full(shape, self._num_slots - 1)
        for row, start, new in zip(rows, starts, taken, strict=True):
            features[row - first, : len(new)] = new
            block[row - first, 0] = contexts[row][-1]
            used = [*range(len(new)), *range(longest, longest + size)]
            positions[row - first, used] = slots[row - first, used] = start + np.arange(len(used))
        view = min(-(-(int(positions.max()) + 1) // VIEW_STEP) * VIEW_STEP, self._num_slots)
        device = self._device
        self._cache.window = Window(slice(first, rows[-1] + 1), torch.as_tensor(slots, device=device), view)
        logits: torch.Tensor = self._head(
            features,
            torch.as_tensor(block, device=device),
            torch.as_tensor(positions, device=device),
            self._cache,
        )
        return logits[[row - first for row in rows]]

    def close(self) -> None:
        self._cache = RowCache(0, 0)


def load_dflash(checkpoint: Checkpoint, target: Backbone) -> DFlashHead:
    """A Qwen3 config with `block_size`, `num_target_layers` and `dflash_config`."""
    reads = context_layers(checkpoint, target.num_layers)
    checkpoint.must_agree("vocab_size", target.vocab_size, f"the vocabulary of {target.name}")
    checkpoint.hidden_size_of(target)
    size = checkpoint.integer("block_size", at_least=2)
    options = checkpoint.config["dflash_config"]
    mask_token_id = options.get("mask_token_id")
    if type(mask_token_id) is not int or not 0 <= mask_token_id < target.vocab_size:
        raise ModelError(
            f"the dflash_config of {checkpoint.name} has mask_token_id = {mask_token_id}, which is no token "
            f"of {target.name}; give the heads that were trained for it."
        )
    for key in ("input_embedding_scale", "output_multiplier", "final_logit_softcapping"):
        if options.get(key, checkpoint.config.get(key)) is not None:
            raise ModelError(f"the config of {checkpoint.name} has {key}, which is not supported.")
    config = Qwen3Config.from_dict(checkpoint.config)
    rotary = Qwen3RotaryEmbedding(config).to(target.device)
    return checkpoint.fill(
        lambda: DFlashHead(config, target, rotary, reads, mask_token_id, size),
        checkpoint.tensors(),
        target,
    )


def context_layers(checkpoint: Checkpoint, num_layers: int) -> tuple[int, ...]:
    """What comes out of the layers that `dflash_config` names, as `Tap.layers`."""
    checkpoint.must_agree("num_target_layers", num_layers, "the number of layers of the target")
    layer_ids = checkpoint.config["dflash_config"].get("target_layer_ids")
    if not layer_ids or not all(type(number) is int and 0 <= number < num_layers for number in layer_ids):
        raise ModelError(
            f"the dflash_config of {checkpoint.name} has target_layer_ids = {layer_ids}, where layers of the "
            f"target are expected, 0 to {num_layers - 1}; give the heads that were trained for it."
        )
    return tuple(number + 1 for number in layer_ids)
