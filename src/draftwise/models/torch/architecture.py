"""What a transformers decoder says of itself: its layers, its longest text, whether its cache can go back."""

import inspect
from collections.abc import Callable, Mapping

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import get_layer_types_and_kwargs

from draftwise.errors import UnsupportedError

UNLIMITED = 1 << 20  # tokens, where nothing else sets a limit

# The lowest position that a token at each position may look back to.
Horizon = Callable[[torch.Tensor], torch.Tensor]

# By kind of layer, from the size of its window or chunk.
_HORIZONS: Mapping[str, Callable[[int], Horizon]] = {
    "full_attention": lambda _: torch.zeros_like,
    "sliding_attention": lambda window: lambda positions: positions - (window - 1),
    "chunked_attention": lambda chunk: lambda positions: positions // chunk * chunk,
}


def horizons(config: PreTrainedConfig) -> dict[str, Horizon]:
    """The horizon of each kind of attention layer that a decoder has."""
    return {kind: _HORIZONS[kind](size) for kind, size in _layer_sizes(config).items()}


def _layer_sizes(config: PreTrainedConfig) -> dict[str, int]:
    """The kinds of layers that a decoder has, and the window or chunk that limits each, 0 if nothing does."""
    kinds, limits = get_layer_types_and_kwargs(config)
    return {kind: limit.get("sliding_window", 0) for kind, limit in zip(kinds, limits, strict=True)}


def longest_text(config: PreTrainedConfig) -> int:
    """The most tokens that a decoder reads in such a way that a key does not depend on how many follow it.

    Beyond the length that the model was first trained on, LongRoPE turns all keys, those in a cache too.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    ropes = [rope] if "rope_type" in rope else rope.values()  # the same for all layers, or by their kind
    turning = [each["original_max_position_embeddings"] for each in ropes if each["rope_type"] == "longrope"]
    return int(min([getattr(config, "max_position_embeddings", UNLIMITED), *turning]))


def is_recurrent(model: PreTrainedModel) -> bool:
    """Whether some of a decoder's layers keep a state that is not keys and values of single tokens."""
    kinds = _recurrent_kinds(model.config.get_text_config(decoder=True))
    return bool(kinds) or model._is_stateful


def _recurrent_kinds(config: PreTrainedConfig) -> list[str]:
    return sorted(_layer_sizes(config).keys() - _HORIZONS.keys())


def refuse_unsupported(model: PreTrainedModel, name: str) -> None:
    """Raise UnsupportedError unless the cache can go back and each token's position and mask can be given."""
    config = model.config.get_text_config(decoder=True)
    if model.config.is_encoder_decoder:
        raise UnsupportedError(f"{name} is an encoder-decoder model; open it as an EncoderDecoderModel.")
    if is_recurrent(model):
        kinds = ", ".join(_recurrent_kinds(config)) or model.config.model_type
        raise UnsupportedError(
            f"{name} keeps a state ({kinds}) that holds no single tokens; open it as a RecurrentModel."
        )
    missing = {"cache", "position_ids", "logits_to_keep"} - inspect.signature(model.forward).parameters.keys()
    if missing or not model._supports_attention_backend:
        raise UnsupportedError(
            f"{name} is a {type(model).__name__}, which takes no position and mask for each token; "
            "give a model of another architecture."
        )
    refuse_attention(config, name)


def refuse_attention(config: PreTrainedConfig, name: str) -> None:
    """Raise UnsupportedError for a kind of attention that takes no mask of its own for each token."""
    if config._attn_implementation not in ("sdpa", "eager"):
        raise UnsupportedError(
            f"{name} runs {config._attn_implementation} attention, which takes no mask for each token; "
            'load it with attn_implementation="sdpa".'
        )
