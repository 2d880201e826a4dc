"""Random checkpoints in the published formats: keys, shapes, configs and kinds of files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from tests.models import tiny

VOCAB_SIZE, WIDTH, MLP_WIDTH, NUM_LAYERS = 29, 32, 48, 8
NUM_HEADS, NUM_KEY_VALUE_HEADS, HEAD_WIDTH = 4, 2, 8
DRAFT_TOKENS = [token for token in range(VOCAB_SIZE) if token % 5 != 3]  # of the reduced vocabulary
BLOCK_SIZE, MASK_TOKEN = 5, VOCAB_SIZE - 1
DFLASH_LAYERS = [1, 3, 5]
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": WIDTH,
    "intermediate_size": MLP_WIDTH,
    "num_attention_heads": NUM_HEADS,
    "num_key_value_heads": NUM_KEY_VALUE_HEADS,
    "num_hidden_layers": 1,
    "vocab_size": VOCAB_SIZE,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 256,
    "hidden_act": "silu",
}


def target(vocab_size: int = VOCAB_SIZE, **options: Any) -> PreTrainedModel:
    return tiny.llama(**{"vocab_size": vocab_size, "num_hidden_layers": NUM_LAYERS, "seed": 3, **options})


def layer(prefix: str, inputs: int = WIDTH) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (NUM_HEADS * HEAD_WIDTH, inputs),
        "self_attn.k_proj.weight": (NUM_KEY_VALUE_HEADS * HEAD_WIDTH, inputs),
        "self_attn.v_proj.weight": (NUM_KEY_VALUE_HEADS * HEAD_WIDTH, inputs),
        "self_attn.o_proj.weight": (WIDTH, NUM_HEADS * HEAD_WIDTH),
        "mlp.gate_proj.weight": (MLP_WIDTH, WIDTH),
        "mlp.up_proj.weight": (MLP_WIDTH, WIDTH),
        "mlp.down_proj.weight": (WIDTH, MLP_WIDTH),
        "post_attention_layernorm.weight": (WIDTH,),
    }
    return {prefix + key: shape for key, shape in shapes.items()}


def random(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> dict[str, Tensor]:
    """Norm weights around one, and the rest of a size that keeps what flows through alive."""
    generator = torch.Generator().manual_seed(seed)
    return {
        key: torch.randn(shape, generator=generator) * 0.15 + ("norm" in key) for key, shape in shapes.items()
    }


def medusa(vocab_size: int = VOCAB_SIZE, num_heads: int = 4) -> tuple[dict[str, Any], dict[str, Tensor]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for head in range(num_heads):
        shapes |= {f"{head}.0.linear.weight": (WIDTH, WIDTH), f"{head}.0.linear.bias": (WIDTH,)}
        shapes |= {f"{head}.1.weight": (vocab_size, WIDTH)}
    # As in the published configs, the number of heads is wrong.
    config = {"medusa_num_heads": 2, "medusa_num_layers": 1, "base_model_name_or_path": "tiny"}
    return config, random(shapes)


def blockwise(vocab_size: int = VOCAB_SIZE) -> tuple[dict[str, Any], dict[str, Tensor]]:
    config = {"blockwise_num_heads": 4, "blockwise_hidden_size": 24, "hidden_size": WIDTH}
    shapes = {
        "ffn.0.weight": (4 * 24, WIDTH),
        "ffn.0.bias": (4 * 24,),
        "ffn.2.weight": (4 * WIDTH, 4 * 24),
        "ffn.2.bias": (4 * WIDTH,),
    }
    return config, random(shapes)


def eagle(vocab_size: int = VOCAB_SIZE) -> tuple[dict[str, Any], dict[str, Tensor]]:
    shapes = {
        "embed_tokens.weight": (vocab_size, WIDTH),
        "fc.weight": (WIDTH, 2 * WIDTH),
        "fc.bias": (WIDTH,),
    }
    return {**LLAMA, "vocab_size": vocab_size, "bias": True}, random({**shapes, **layer("layers.0.")})


def eagle3(vocab_size: int = VOCAB_SIZE) -> tuple[dict[str, Any], dict[str, Tensor]]:
    used = torch.tensor([token for token in DRAFT_TOKENS if token < vocab_size])
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (WIDTH, 3 * WIDTH),
        "norm.weight": (WIDTH,),
        "lm_head.weight": (len(used), WIDTH),
        "midlayer.hidden_norm.weight": (WIDTH,),
        "midlayer.input_layernorm.weight": (WIDTH,),
        **layer("midlayer.", 2 * WIDTH),
    }
    t2d = torch.zeros(vocab_size, dtype=torch.bool)
    t2d[used] = True
    tensors = {**random(shapes), "d2t": used - torch.arange(len(used)), "t2d": t2d}
    return {**LLAMA, "vocab_size": vocab_size, "draft_vocab_size": len(used)}, tensors


def dflash(vocab_size: int = VOCAB_SIZE) -> tuple[dict[str, Any], dict[str, Tensor]]:
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (WIDTH, len(DFLASH_LAYERS) * WIDTH),
        "hidden_norm.weight": (WIDTH,),
        "norm.weight": (WIDTH,),
    }
    for number in range(2):
        shapes |= layer(f"layers.{number}.") | {
            f"layers.{number}.input_layernorm.weight": (WIDTH,),
            f"layers.{number}.self_attn.q_norm.weight": (HEAD_WIDTH,),
            f"layers.{number}.self_attn.k_norm.weight": (HEAD_WIDTH,),
        }
    config = {
        **LLAMA,
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "head_dim": HEAD_WIDTH,
        "num_hidden_layers": 2,
        "vocab_size": vocab_size,
        "block_size": BLOCK_SIZE,
        "num_target_layers": NUM_LAYERS,
        "layer_types": ["full_attention"] * 2,
        "dflash_config": {"target_layer_ids": DFLASH_LAYERS, "mask_token_id": vocab_size - 1},
    }
    return config, random(shapes)


METHODS = {"medusa": medusa, "blockwise": blockwise, "eagle": eagle, "eagle3": eagle3, "dflash": dflash}
FILES = {"medusa": "medusa_lm_head.pt", "eagle": "pytorch_model.bin", "eagle3": "pytorch_model.bin"}


def save(folder: Path, name: str, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Path:
    """Write a checkpoint of a method, in the kind of file in which it is published."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    plain = {key: tensor.detach().contiguous() for key, tensor in tensors.items()}
    if name in FILES:
        torch.save(plain, folder / FILES[name])
    else:
        save_file(plain, folder / "model.safetensors")
    return folder
