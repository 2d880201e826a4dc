"""EAGLE (2401.15077): one decoder layer that continues the target's own last hidden states."""

import torch
from torch import nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaDecoderLayer, LlamaRotaryEmbedding

from draftwise.drafters.growth import Shape
from draftwise.drafters.heads.autoregressive import AutoregressiveState
from draftwise.drafters.heads.backbone import Backbone
from draftwise.drafters.heads.checkpoint import Checkpoint, Tensors
from draftwise.drafters.heads.feature_tree import open_state
from draftwise.drafters.heads.parallel import FINAL
from draftwise.models.torch.cache import RowCache


class EagleHead(nn.Module):
    """f'_{i+1} = layer(fc([embedding(t_{i+1}); f_i])); the target's output layer turns f' into logits.

    f is what the target's output layer reads. The layer is Llama's, without its first norm. EAGLE-2
    (2406.16858) has the same weights.
    """

    default_num_draft_tokens = 5
    reads: tuple[int, ...] = (FINAL,)

    def __init__(
        self,
        config: LlamaConfig,
        target: Backbone,
        rotary: LlamaRotaryEmbedding,
        *,
        fc_bias: bool,
        qkv_bias: bool,
    ) -> None:
        super().__init__()
        width = config.hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, width)
        self.fc = nn.Linear(2 * width, width, bias=fc_bias)
        layer = LlamaDecoderLayer(config, 0)
        layer.input_layernorm = nn.Identity()
        set_inputs(layer.self_attn, width, qkv_bias)
        self.layers = nn.ModuleList([layer])
        # No parts of this module: it has no weights for them.
        self._shared = target, rotary

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """As `FeatureHead`."""
        return features

    def forward(
        self,
        token_ids: torch.Tensor,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor,
        cache: RowCache,
    ) -> torch.Tensor:
        """As `FeatureHead`."""
        _, rotary = self._shared
        inputs = self.fc(torch.cat([self.embed_tokens(token_ids), hidden], dim=-1))
        made: torch.Tensor = self.layers[0](
            inputs, attention_mask=mask, cache=cache, position_embeddings=rotary(inputs, positions)
        )
        return made

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """As `FeatureHead`."""
        target, _ = self._shared
        logits: torch.Tensor = target.output(hidden)
        return logits

    def open(self, num_sequences: int, max_length: int, tree: Shape | None) -> AutoregressiveState:
        """As `Method`."""
        target, _ = self._shared
        return open_state(self, num_sequences, max_length, target.device, tree)


def set_inputs(attention: LlamaAttention, width: int, bias: bool) -> None:
    """Let queries, keys and values be made of vectors of `width`."""
    for name in ("q_proj", "k_proj", "v_proj"):
        size = getattr(attention, name).out_features
        setattr(attention, name, nn.Linear(width, size, bias=bias))


def llama_config(checkpoint: Checkpoint, target: Backbone) -> LlamaConfig:
    """The config of one Llama layer; raises ModelError where it cannot be one for the target."""
    checkpoint.must_agree("num_hidden_layers", 1, "the number of layers of such a head")
    checkpoint.must_agree("vocab_size", target.vocab_size, f"the vocabulary of {target.name}")
    config = LlamaConfig.from_dict(checkpoint.config)
    config._attn_implementation = "sdpa"
    return config


def with_embedding(tensors: Tensors, target: Backbone) -> Tensors:
    """The tensors and, where they lack an embedding, the target's."""
    return {"embed_tokens.weight": target.embedding, **tensors}


def load_eagle(checkpoint: Checkpoint, target: Backbone) -> EagleHead:
    """A Llama config of one layer; `bias` in it, or else the file, says whether fc has one."""
    checkpoint.hidden_size_of(target)
    config = llama_config(checkpoint, target)
    tensors = with_embedding(checkpoint.tensors(), target)
    rotary = LlamaRotaryEmbedding(config).to(target.device)
    return checkpoint.fill(
        lambda: EagleHead(
            config,
            target,
            rotary,
            fc_bias=checkpoint.config.get("bias", "fc.bias" in tensors),
            qkv_bias=checkpoint.config.get("qkv_bias", False),
        ),
        tensors,
        target,
    )
