"""EAGLE-3 (2503.01840): three of the target's hidden states fused, and an output layer of its own."""

import torch
from torch import nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding

from draftwise.drafters.growth import Shape
from draftwise.drafters.heads.autoregressive import AutoregressiveState
from draftwise.drafters.heads.backbone import Backbone
from draftwise.drafters.heads.checkpoint import Checkpoint
from draftwise.drafters.heads.eagle import llama_config, set_inputs, with_embedding
from draftwise.drafters.heads.feature_tree import open_state
from draftwise.errors import ModelError
from draftwise.models.torch.cache import RowCache


class MidLayer(LlamaDecoderLayer):
    """A Llama layer whose attention looks at the token's embedding beside the hidden state."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config, 0)
        self.hidden_norm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        set_inputs(self.self_attn, 2 * config.hidden_size, config.attention_bias)

    def forward(
        self,
        embedded: torch.Tensor,
        hidden: torch.Tensor,
        mask: torch.Tensor,
        cache: RowCache,
        rotary: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        """All `[rows, entries, width]`; the residual connection is around the hidden state alone."""
        inputs = torch.cat([self.input_layernorm(embedded), self.hidden_norm(hidden)], dim=-1)
        mixed, _ = self.self_attn(inputs, rotary, attention_mask=mask, cache=cache)
        hidden = hidden + mixed
        made: torch.Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return made


class Eagle3Head(nn.Module):
    """g = fc([l; m; h]), later the midlayer's own output; logits = lm_head(norm(midlayer(embedding, g)))."""

    default_num_draft_tokens = 5
    t2d: torch.Tensor

    def __init__(
        self,
        config: LlamaConfig,
        target: Backbone,
        rotary: LlamaRotaryEmbedding,
        reads: tuple[int, ...],
        target_width: int,
    ) -> None:
        super().__init__()
        width, draft_vocab_size = config.hidden_size, config.draft_vocab_size
        self.reads = reads
        self.embed_tokens = nn.Embedding(config.vocab_size, width)
        self.fc = nn.Linear(len(reads) * target_width, width, bias=False)
        self.midlayer = MidLayer(config)
        self.norm = LlamaRMSNorm(width, eps=config.rms_norm_eps)
        self.lm_head = nn.Linear(width, draft_vocab_size, bias=False)
        if draft_vocab_size < config.vocab_size:
            self.register_buffer("d2t", torch.zeros(draft_vocab_size, dtype=torch.int64))
            self.register_buffer("t2d", torch.zeros(config.vocab_size, dtype=torch.bool))
        # No parts of this module: it has no weights for them.
        self._shared = target, rotary

    @property
    def token_ids(self) -> torch.Tensor | None:
        """The target's token id of each token of the draft vocabulary; None where they are the same."""
        d2t: torch.Tensor | None = getattr(self, "d2t", None)
        return None if d2t is None else torch.arange(len(d2t), device=d2t.device) + d2t

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """As `FeatureHead`."""
        fused: torch.Tensor = self.fc(features)
        return fused

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
        made: torch.Tensor = self.midlayer(
            self.embed_tokens(token_ids), hidden, mask, cache, rotary(hidden, positions)
        )
        return made

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """As `FeatureHead`; -inf for what the draft vocabulary lacks, which is thus never drafted."""
        own: torch.Tensor = self.lm_head(self.norm(hidden))
        if self.token_ids is None:
            return own
        logits = own.new_full((len(own), self.embed_tokens.num_embeddings), -torch.inf)
        logits[:, self.token_ids] = own
        return logits

    def open(self, num_sequences: int, max_length: int, tree: Shape | None) -> AutoregressiveState:
        """As `Method`."""
        target, _ = self._shared
        return open_state(self, num_sequences, max_length, target.device, tree)


def load_eagle3(checkpoint: Checkpoint, target: Backbone) -> Eagle3Head:
    """A Llama config with `draft_vocab_size`, which may leave out the embedding (the target's).

    Raises ModelError also for d2t and t2d that do not say the same of the draft vocabulary.
    """
    reads = fused_layers(checkpoint, target.num_layers)
    checkpoint.must_agree("target_hidden_size", target.width, f"the width of {target.name}")
    if "target_hidden_size" not in checkpoint.config:
        checkpoint.hidden_size_of(target)
    if checkpoint.config.get("norm_output"):
        raise ModelError(
            f"the config of {checkpoint.name} has norm_output, which is not supported; give EAGLE-3 heads."
        )
    checkpoint.integer("draft_vocab_size")
    config = llama_config(checkpoint, target)
    tensors = with_embedding(checkpoint.tensors(), target)
    rotary = LlamaRotaryEmbedding(config).to(target.device)
    head = checkpoint.fill(lambda: Eagle3Head(config, target, rotary, reads, target.width), tensors, target)
    _check_vocabulary(checkpoint.name, head)
    return head


def fused_layers(checkpoint: Checkpoint, num_layers: int) -> tuple[int, ...]:
    """What goes into the layers 2, L / 2 and L - 3, the only choice of published heads, as `Tap.layers`."""
    reads = (2, num_layers // 2, num_layers - 3)
    if list(reads) != sorted(set(reads)):
        raise ModelError(
            f"{checkpoint.name} reads three layers between the third and the third last, but the target has "
            f"{num_layers} layers; give the target that the heads were trained for."
        )
    named = checkpoint.config.get("eagle_config", {}).get("eagle_aux_hidden_state_layer_ids", reads)
    if tuple(named) not in (reads, tuple(number - 1 for number in reads)):  # counted as inputs or as outputs
        raise ModelError(
            f"the config of {checkpoint.name} has eagle_aux_hidden_state_layer_ids = {named}, which for a "
            f"target of {num_layers} layers should be {list(reads)}; give the heads that were trained for it."
        )
    return reads


def _check_vocabulary(name: str, head: Eagle3Head) -> None:
    if head.token_ids is None:
        return
    stated = torch.zeros_like(head.t2d)
    inside = (head.token_ids >= 0) & (head.token_ids < len(stated))
    stated[head.token_ids[inside]] = True
    if not inside.all() or not torch.equal(stated, head.t2d) or stated.sum() != len(head.token_ids):
        raise ModelError(
            f"{name} has d2t and t2d that name different draft vocabularies; fetch the checkpoint again."
        )
