"""The encoder of a transformers model: what it can read, and what it makes of that."""

from typing import Any

import torch
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel

from draftwise.errors import PromptError, UnsupportedError
from draftwise.models.torch.positions import Positions
from draftwise.types import Source


class TextEncoder:
    """Reads token ids."""

    def __init__(self, model: PreTrainedModel, name: str) -> None:
        self._model = model
        self._name = name
        self._max_length = Positions(model.get_encoder(), name).max_length
        self.start_ids = start_ids(model, name)

    @property
    def example(self) -> Source:
        """Tokens from all over the vocabulary."""
        return tuple(7919 * number % self._model.config.vocab_size for number in range(1, 65))

    def check(self, source: Source) -> None:
        """Raise PromptError for sound, and for token ids that are too many or not in the vocabulary."""
        if not isinstance(source, tuple):
            raise PromptError(f"{self._name} reads text, not sound; give it text or token ids.")
        if len(source) > self._max_length:
            raise PromptError(
                f"the input has {len(source)} tokens, but the encoder of {self._name} reads at most "
                f"{self._max_length}; shorten it."
            )
        vocab_size = self._model.config.vocab_size
        outside = next((token_id for token_id in source if not 0 <= token_id < vocab_size), None)
        if outside is not None:
            raise PromptError(f"token id {outside} is outside {self._name}'s vocabulary of {vocab_size}.")

    @torch.inference_mode()
    def read(self, source: Source) -> list[torch.Tensor]:
        """For each layer of the decoder, keys and values `[2, heads, tokens, head_dim]` of this source."""
        self.check(source)
        token_ids = torch.tensor([list(source)], device=self._model.device)
        return _keys_and_values(self._model, self._model.get_encoder()(input_ids=token_ids).last_hidden_state)


def _keys_and_values(model: PreTrainedModel, hidden: torch.Tensor) -> list[torch.Tensor]:
    """What each layer of the decoder looks up in the encoder's output `[1, tokens, width]`.

    The decoder works it out when it first runs, here over one token that is then forgotten.
    """
    looked_up = DynamicCache()
    model.get_decoder()(
        input_ids=torch.zeros((1, 1), dtype=torch.long, device=model.device),
        encoder_hidden_states=hidden,
        cache=EncoderDecoderCache(DynamicCache(), looked_up),
        use_cache=True,
    )
    return [torch.cat((layer.keys, layer.values)) for layer in looked_up.layers]


def start_ids(model: PreTrainedModel, name: str) -> tuple[int, ...]:
    """What every text of the decoder begins with: the start token, and the one that is forced after it.

    Raises UnsupportedError where the model names no start token.
    """
    start = generation_option(model, "decoder_start_token_id")
    if start is None:
        start = generation_option(model, "bos_token_id")
    if start is None:
        raise UnsupportedError(
            f"{name} names no decoder_start_token_id, which its texts would begin with; add it to its "
            "generation_config.json."
        )
    forced = generation_option(model, "forced_bos_token_id")
    return (start,) if forced is None else (start, forced)


def generation_option(model: PreTrainedModel, key: str) -> Any:
    """What the model's generation config says, or else its config; None if neither does."""
    configs = (config for config in (model.generation_config, model.config) if config is not None)
    return next((value for config in configs if (value := getattr(config, key, None)) is not None), None)
