"""Tiny transformers decoders with recurrent layers, alone and among others, and with random weights."""

from collections.abc import Callable, Mapping

from transformers import (
    FalconH1Config,
    FalconH1ForCausalLM,
    Lfm2Config,
    Lfm2ForCausalLM,
    Mamba2Config,
    Mamba2ForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    PreTrainedModel,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
    Zamba2Config,
    Zamba2ForCausalLM,
)

from tests.models.tiny import _GROUPED, _SHAPE, _maker

_MAMBA = {
    **{
        key: value
        for key, value in _SHAPE.items()
        if not key.endswith(("heads", "embeddings", "mediate_size"))
    },
    "tie_word_embeddings": False,
    "state_size": 8,
}
_HEADS = {"mamba_d_head": 16, "mamba_n_heads": 4, "mamba_d_state": 8, "mamba_chunk_size": 8}
RECURRENT: Mapping[str, Callable[..., PreTrainedModel]] = {
    "mamba2": _maker(
        Mamba2ForCausalLM, Mamba2Config, **_MAMBA, num_heads=4, head_dim=16, n_groups=1, chunk_size=8
    ),
    "lfm2": _maker(Lfm2ForCausalLM, Lfm2Config, **_GROUPED, layer_types=["conv", "full_attention"]),
    "qwen3_next": _maker(
        Qwen3NextForCausalLM,
        Qwen3NextConfig,
        **_GROUPED,
        layer_types=["linear_attention", "full_attention"],
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=8,
        shared_expert_intermediate_size=8,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
    ),
    # Both kinds in each layer.
    "falcon_h1": _maker(FalconH1ForCausalLM, FalconH1Config, **_GROUPED, **_HEADS, mamba_d_ssm=64),
}
# Those that transformers runs over several tokens in another way than over one.
ONE_BY_ONE: Mapping[str, Callable[..., PreTrainedModel]] = {
    "mamba": _maker(MambaForCausalLM, MambaConfig, **_MAMBA),
    "zamba2": _maker(
        Zamba2ForCausalLM,
        Zamba2Config,
        **_SHAPE,
        mamba_d_state=8,
        n_mamba_heads=4,
        chunk_size=8,
        adapter_rank=8,
        layers_block_type=["mamba", "hybrid"],
    ),
}
