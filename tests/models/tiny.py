"""Tiny transformers decoders with random weights, lively enough not to repeat one token for ever."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Starcoder2Config,
    Starcoder2ForCausalLM,
)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """For the modules that import it: a model this small spends its time on handing work to other threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


VOCAB_SIZE = 97
WINDOW = 7  # of the architectures that do not attend to all of a text
SCALE = 0.3  # of the weights: with transformers' own 0.02 a random model repeats one token

_SHAPE = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "initializer_range": SCALE,
    "tie_word_embeddings": False,  # a tied one has every token name itself
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
_GROUPED = {**_SHAPE, "num_key_value_heads": 2, "head_dim": 8}


def _maker(
    model: type[PreTrainedModel], config: type[PreTrainedConfig], **options: Any
) -> Callable[..., PreTrainedModel]:
    def make(*, seed: int = 0, dtype: torch.dtype = torch.float32, **more: Any) -> PreTrainedModel:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            made: PreTrainedModel = model(config(**{**options, **more})).to(dtype).eval()
        return made

    return make


llama = _maker(LlamaForCausalLM, LlamaConfig, **_GROUPED)
ARCHITECTURES: Mapping[str, Callable[..., PreTrainedModel]] = {
    "llama": llama,
    "qwen2": _maker(Qwen2ForCausalLM, Qwen2Config, **_GROUPED),
    "gpt2": _maker(GPT2LMHeadModel, GPT2Config, **_SHAPE),  # learned positions
    "opt": _maker(
        OPTForCausalLM, OPTConfig, **_SHAPE, ffn_dim=48, word_embed_proj_dim=32, init_std=SCALE
    ),  # learned positions with an offset
    # Alternating windows, soft-capped scores and logits.
    "gemma2": _maker(Gemma2ForCausalLM, Gemma2Config, **_GROUPED, sliding_window=WINDOW),
    # Windows in all but each sixth layer, here the second, and two rotary bases.
    "gemma3": _maker(
        Gemma3ForCausalLM,
        Gemma3TextConfig,
        **_GROUPED,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "mistral": _maker(MistralForCausalLM, MistralConfig, **_GROUPED, sliding_window=WINDOW),  # all windows
    "phi": _maker(PhiForCausalLM, PhiConfig, **_SHAPE),  # attention beside the MLP, partial rotary
    "gpt_neox": _maker(GPTNeoXForCausalLM, GPTNeoXConfig, **_SHAPE),
    # All windows; no step of it is in float32 when its weights are in float64.
    "starcoder2": _maker(Starcoder2ForCausalLM, Starcoder2Config, **_GROUPED, sliding_window=WINDOW),
    # Attention in chunks, and routed experts.
    "llama4": _maker(
        Llama4ForCausalLM,
        Llama4TextConfig,
        **_GROUPED,
        intermediate_size_mlp=48,
        num_local_experts=4,
        attention_chunk_size=WINDOW,
        layer_types=["chunked_attention", "full_attention"],
    ),
}
