"""The equations of the papers in plain PyTorch, over whole texts and with no cache."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import relu, silu
from transformers import PreTrainedModel

from tests.drafters.heads import published
from tests.drafters.heads.published import HEAD_WIDTH, NUM_HEADS, NUM_KEY_VALUE_HEADS

Weights = Mapping[str, Tensor]
EPSILON, ROPE_BASE = 1e-6, 10000.0


def normed(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * weight


def turned(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary embedding of `[tokens, heads, width]`: the first half of each head with the second."""
    half = x.shape[-1] // 2
    angles = positions[:, None, None] * ROPE_BASE ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def attention(w: Weights, queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
    """`[tokens, heads, width]` each; grouped heads; `visible` `[queries, keys]`."""
    group = NUM_HEADS // NUM_KEY_VALUE_HEADS
    keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", queries, keys) / HEAD_WIDTH**0.5
    weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, values).flatten(1) @ w["self_attn.o_proj.weight"].T


def heads(x: Tensor, weight: Tensor) -> Tensor:
    split: Tensor = (x @ weight.T).unflatten(-1, (-1, HEAD_WIDTH))
    return split


def causal_attention(w: Weights, x: Tensor) -> Tensor:
    at = torch.arange(len(x))
    queries, keys, values = (heads(x, w[f"self_attn.{name}_proj.weight"]) for name in "qkv")
    return attention(w, turned(queries, at), turned(keys, at), values, at[:, None] >= at)


def mlp(w: Weights, x: Tensor) -> Tensor:
    x = normed(x, w["post_attention_layernorm.weight"])
    gated = silu(x @ w["mlp.gate_proj.weight"].T) * (x @ w["mlp.up_proj.weight"].T)
    return gated @ w["mlp.down_proj.weight"].T


def below(w: Weights, prefix: str) -> Weights:
    return {key.removeprefix(prefix): tensor for key, tensor in w.items() if key.startswith(prefix)}


def medusa(w: Weights, hidden: Tensor) -> Tensor:
    """`[texts, width]` to `[texts, heads, vocabulary]` (2401.10774, section 2.1)."""
    logits: list[Tensor] = []
    while f"{len(logits)}.1.weight" in w:
        head = below(w, f"{len(logits)}.")
        logits.append(
            (silu(hidden @ head["0.linear.weight"].T + head["0.linear.bias"]) + hidden) @ head["1.weight"].T
        )
    return torch.stack(logits, 1)


def blockwise(w: Weights, hidden: Tensor, model: PreTrainedModel) -> Tensor:
    """`[texts, width]` to the logits of p_2 to p_k (1811.03115, section 6)."""
    inner = relu(hidden @ w["ffn.0.weight"].T + w["ffn.0.bias"])
    outputs = (inner @ w["ffn.2.weight"].T + w["ffn.2.bias"]).unflatten(-1, (-1, hidden.shape[-1]))
    logits: Tensor = (hidden[:, None] + outputs)[:, 1:] @ model.lm_head.weight.T
    return logits


def eagle(w: Weights, tokens: Tensor, hidden: Tensor) -> Tensor:
    """Pairs of f_i and t_{i+1} to f'_{i+1} (2401.15077, section 4.1)."""
    x = torch.cat([w["embed_tokens.weight"][tokens], hidden], -1) @ w["fc.weight"].T + w.get("fc.bias", 0)
    layer = below(w, "layers.0.")
    x = x + causal_attention(layer, x)
    return x + mlp(layer, x)


def eagle3(w: Weights, tokens: Tensor, hidden: Tensor, model: PreTrainedModel) -> Tensor:
    """Pairs to the head's own hidden states (2503.01840, section 3.1)."""
    layer = below(w, "midlayer.")
    embedded = w.get("embed_tokens.weight", model.model.embed_tokens.weight)[tokens]
    x = torch.cat(
        [normed(embedded, layer["input_layernorm.weight"]), normed(hidden, layer["hidden_norm.weight"])], -1
    )
    hidden = hidden + causal_attention(layer, x)
    return hidden + mlp(layer, hidden)


def eagle3_logits(w: Weights, hidden: Tensor, vocab_size: int) -> Tensor:
    """-inf outside of the draft vocabulary."""
    own = normed(hidden, w["norm.weight"]) @ w["lm_head.weight"].T
    if "d2t" not in w:
        return own
    logits = torch.full((*own.shape[:-1], vocab_size), -torch.inf)
    for index, offset in enumerate(w["d2t"].tolist()):
        logits[..., index + offset] = own[..., index]
    return logits


def dflash(
    w: Weights, features: Tensor, anchor: int, size: int, mask_id: int, model: PreTrainedModel
) -> Tensor:
    """Features of all tokens before the anchor to logits of the block's `size - 1` masks (2602.06036)."""
    context = normed(features @ w["fc.weight"].T, w["hidden_norm.weight"])
    block = model.model.embed_tokens.weight[torch.tensor([anchor] + [mask_id] * (size - 1))]
    at = torch.arange(len(context) + size)
    number = 0
    while layer := below(w, f"layers.{number}."):
        number += 1
        x = normed(block, layer["input_layernorm.weight"])
        queries = heads(x, layer["self_attn.q_proj.weight"])
        keys, values = (
            heads(torch.cat([context, x]), layer[f"self_attn.{name}_proj.weight"]) for name in "kv"
        )
        queries = turned(normed(queries, layer["self_attn.q_norm.weight"]), at[len(context) :])
        keys = turned(normed(keys, layer["self_attn.k_norm.weight"]), at)
        everything = torch.ones(size, len(at), dtype=torch.bool)
        block = block + attention(layer, queries, keys, values, everything)
        block = block + mlp(layer, block)
    logits: Tensor = normed(block, w["norm.weight"])[1:] @ model.lm_head.weight.T
    return logits


@lru_cache(4)  # one text after another is asked about, and of each several drafts
def hidden_states(model: PreTrainedModel, tokens: tuple[int, ...]) -> list[Tensor]:
    with torch.inference_mode():
        output = model(torch.tensor([tokens]), output_hidden_states=True, use_cache=False)
    return [hidden[0] for hidden in output.hidden_states]


def stated_logits(
    method: str,
    weights: Weights,
    model: PreTrainedModel,
    context: Sequence[int],
    drafted: Sequence[int],
) -> Tensor:
    """What a head has to say at each position of a draft that follows `context`, from scratch."""
    hidden = hidden_states(model, tuple(context[:-1]))  # the target has not read the last token
    if method == "medusa":
        return medusa(weights, hidden[-1][-1:])[0, : len(drafted)]
    if method == "blockwise":
        return blockwise(weights, hidden[-1][-1:], model)[0, : len(drafted)]
    if method == "dflash":
        features = torch.cat([hidden[number + 1] for number in published.DFLASH_LAYERS], -1)
        size, mask = published.BLOCK_SIZE, len(model.lm_head.weight) - 1
        return dflash(weights, features, context[-1], size, mask, model)[: len(drafted)]
    num_layers = published.NUM_LAYERS
    states = (
        hidden[-1]
        if method == "eagle"
        else torch.cat([hidden[2], hidden[num_layers // 2], hidden[num_layers - 3]], -1)
        @ weights["fc.weight"].T
    )
    logits = []
    tokens = list(context[1:])
    for token in drafted:
        if method == "eagle":
            made = eagle(weights, torch.tensor(tokens), states)[-1:]
            logits.append(made @ model.lm_head.weight.T)
        else:
            made = eagle3(weights, torch.tensor(tokens), states, model)[-1:]
            logits.append(eagle3_logits(weights, made, len(model.lm_head.weight)))
        states = torch.cat([states, made])
        tokens.append(token)
    return torch.cat(logits)
