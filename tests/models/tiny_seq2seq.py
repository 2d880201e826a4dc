"""Tiny transformers encoder-decoders with random weights, lively enough not to repeat one token for ever."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    PreTrainedConfig,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from draftwise.types import Source
from tests.models.tiny import VOCAB_SIZE

SOURCES = [
    tuple(int(token_id) for token_id in np.random.default_rng(seed).integers(3, VOCAB_SIZE, length))
    for seed, length in enumerate((14, 5, 23))
]


def _maker(
    model: type[PreTrainedModel], config: type[PreTrainedConfig], gain: float, **options: Any
) -> Callable[..., PreTrainedModel]:
    """`gain`: of the layers. The output layer names, for each token that was read, another one."""

    def make(*, seed: int = 0, dtype: torch.dtype = torch.float32, **more: Any) -> PreTrainedModel:
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(seed)
            made: PreTrainedModel = model(config(**{**options, **more}))
            for name, weights in made.named_parameters():
                if weights.dim() > 1 and weights.requires_grad:
                    is_table = "embed" in name or "shared" in name or "relative" in name
                    weights.normal_(0, 3 if is_table else gain / weights.shape[1] ** 0.5)
            shuffled = made.get_input_embeddings().weight[torch.randperm(made.config.vocab_size)]
            made.get_output_embeddings().weight = nn.Parameter(shuffled)
            if hasattr(made, "final_logits_bias"):
                made.final_logits_bias.normal_()
        return made.to(dtype).eval()

    return make


_T5 = {
    "vocab_size": VOCAB_SIZE,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 1,
    "num_decoder_layers": 2,
    "num_heads": 4,
    # Few and near, so that texts are long enough for all of them.
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 24,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
    "eos_token_id": None,
}
_BART = {
    "vocab_size": VOCAB_SIZE,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 256,
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": None,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
MEL_BINS, FRAMES = 8, 100  # a second
SOUNDS = [
    np.random.default_rng(seed).normal(0, 3, (MEL_BINS, FRAMES)).astype(np.float32) for seed in range(3)
]
_WHISPER = {
    **_BART,
    "num_mel_bins": MEL_BINS,
    "max_source_positions": FRAMES // 2,
    "max_target_positions": 256,
    "pad_token_id": 0,
    "begin_suppress_tokens": None,
}
whisper = _maker(WhisperForConditionalGeneration, WhisperConfig, 1.6, **_WHISPER)
bart = _maker(BartForConditionalGeneration, BartConfig, 1, **_BART)  # learned positions with an offset
ENCODER_DECODERS: Mapping[str, Callable[..., PreTrainedModel]] = {
    "t5": _maker(T5ForConditionalGeneration, T5Config, 1.6, **_T5, tie_word_embeddings=False),
    "t5-gated": _maker(T5ForConditionalGeneration, T5Config, 1.6, **_T5, feed_forward_proj="gated-gelu"),
    "bart": bart,
    "marian": _maker(MarianMTModel, MarianConfig, 1, **_BART),  # sinusoidal positions
    "whisper": whisper,  # hears
}


def sources_of(architecture: str) -> Sequence[Source]:
    """Three inputs that the encoder can read."""
    return SOUNDS if architecture == "whisper" else SOURCES


def given(source: Source) -> dict[str, torch.Tensor]:
    """A source as transformers takes it."""
    if isinstance(source, tuple):
        return {"input_ids": torch.tensor([source])}
    return {"input_features": torch.tensor(source[None])}
