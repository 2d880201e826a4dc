"""The encoder of a transformers model: what it can read, and what it makes of that."""

import copy
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel

from draftwise.errors import OptionError, PromptError, UnsupportedError
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

    def read(self, source: Source) -> list[torch.Tensor]:
        """For each layer of the decoder, keys and values `[2, heads, tokens, head_dim]` of this source."""
        self.check(source)
        return _keys_and_values(self._model, torch.tensor([list(source)], device=self._model.device))


class SoundEncoder:
    """Reads features `[mel bins, frames]`, or a waveform `[samples]` where it has a feature extractor.

    A waveform has the sampling rate of the extractor, 16 kHz for Whisper, and may be shorter than what the
    encoder reads at once; features have its very shape.
    """

    def __init__(self, model: PreTrainedModel, name: str, feature_extractor: Any = None) -> None:
        self._model = model
        self._name = name
        self._extractor = feature_extractor
        encoder = model.get_encoder()
        num_frames = model.config.max_source_positions * encoder.conv1.stride[0] * encoder.conv2.stride[0]
        self._shape = (model.config.num_mel_bins, num_frames)
        languages = generation_option(model, "lang_to_id")
        self.start_ids = () if languages and not _says_language(model) else self._start_ids()

    def hear(self, language: str, task: str = "transcribe") -> None:
        """Begin texts as a multilingual Whisper has to be told: what language it hears, and what to do.

        `language`: a name or a code ("german", "de"); `task`: "transcribe", or "translate" into English.
        Raises OptionError for one that the model does not know.
        """
        if not generation_option(self._model, "lang_to_id"):
            raise OptionError(f"{self._name} hears one language and has one task; name none.")
        try:
            self.start_ids = self._start_ids(language=language, task=task)
        except (ValueError, KeyError) as error:
            raise OptionError(f"{self._name} does not {task} {language} ({error}); name another.") from None

    def _start_ids(self, **said: str) -> tuple[int, ...]:
        config = copy.deepcopy(self._model.generation_config)
        for key, value in {"return_timestamps": False, **said}.items():
            setattr(config, key, value)
        tokens = self._model._retrieve_init_tokens(None, 1, config, self._model.config, self._shape[1], {})
        return tuple(tokens[0].tolist())

    @property
    def example(self) -> Source:
        """Silence."""
        return np.zeros(self._shape, np.float32)

    def check(self, source: Source) -> None:
        """Raise PromptError for text, for sound of another shape, and while no language is named."""
        if isinstance(source, tuple):
            raise PromptError(f"{self._name} reads sound, not text; give it a waveform or features.")
        if not self.start_ids:
            raise PromptError(
                f"{self._name} knows many languages; say which it hears, as in encoder.hear('english')."
            )
        if source.ndim == 1 and self._extractor is not None:
            most = self._extractor.n_samples
            if len(source) > most:
                raise PromptError(
                    f"the sound has {len(source)} samples, but {self._name} reads at most {most} at once; "
                    "cut it."
                )
        elif source.shape != self._shape:
            raise PromptError(
                f"{self._name} reads features of shape {self._shape}, not {source.shape}; give a waveform, "
                "which needs a checkpoint with a feature extractor, or those features."
            )

    def read(self, source: Source) -> list[torch.Tensor]:
        """For each layer of the decoder, keys and values `[2, heads, tokens, head_dim]` of this source."""
        self.check(source)
        features = np.asarray(source)
        if features.ndim == 1:
            rate = self._extractor.sampling_rate
            features = self._extractor(features, sampling_rate=rate, return_tensors="np").input_features[0]
        return _keys_and_values(
            self._model, torch.as_tensor(features[None], dtype=self._model.dtype, device=self._model.device)
        )


def encoder_of(model: PreTrainedModel, name: str, feature_extractor: Any) -> TextEncoder | SoundEncoder:
    """The encoder of a model; raises UnsupportedError for one that reads neither text nor as Whisper does."""
    if model.main_input_name == "input_ids":
        return TextEncoder(model, name)
    if model.config.model_type == "whisper":
        return SoundEncoder(model, name, feature_extractor)
    raise UnsupportedError(
        f"{name} is a {type(model).__name__}, which reads neither text nor sound as Whisper does; give a "
        "model of another architecture."
    )


@torch.inference_mode()
def _keys_and_values(model: PreTrainedModel, inputs: torch.Tensor) -> list[torch.Tensor]:
    """What each layer of the decoder looks up in what the encoder makes of `inputs` `[1, ...]`.

    The decoder works it out when it first runs, here over one token that is then forgotten.
    """
    looked_up = DynamicCache()
    model.get_decoder()(
        input_ids=torch.zeros((1, 1), dtype=torch.long, device=model.device),
        encoder_hidden_states=model.get_encoder()(inputs).last_hidden_state,
        cache=EncoderDecoderCache(DynamicCache(), looked_up),
        use_cache=True,
    )
    return [torch.cat((layer.keys, layer.values)) for layer in looked_up.layers]


def _says_language(model: PreTrainedModel) -> bool:
    """Whether the generation config itself says how texts begin."""
    forced = generation_option(model, "forced_decoder_ids")
    return bool(generation_option(model, "language") or (forced and forced[0][1] is not None))


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
