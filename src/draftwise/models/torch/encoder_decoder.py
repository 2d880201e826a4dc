"""A transformers encoder-decoder as a LanguageModel: the encoder runs once for each input."""

import inspect
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from draftwise.errors import OptionError, UnsupportedError
from draftwise.models.torch.architecture import refuse_attention
from draftwise.models.torch.base import on_host
from draftwise.models.torch.cache import Window
from draftwise.models.torch.encoders import SoundEncoder, TextEncoder, encoder_of, generation_option
from draftwise.models.torch.engine import TorchModel, TorchState
from draftwise.models.torch.feed import Piece
from draftwise.models.torch.hearing import Hearing
from draftwise.models.torch.mask import as_taken, attention_masks
from draftwise.models.torch.positions import Positions
from draftwise.models.torch.source_cache import SourceCache
from draftwise.tokenizer import Tokenizer
from draftwise.types import Logits, Source

_TAKEN = {"decoder_input_ids", "decoder_attention_mask", "encoder_outputs", "attention_mask", "cache"}


class EncoderDecoderModel(TorchModel):
    """An encoder-decoder transformers model as the target or a draft model, as TorchModel.

    Of its generation config it takes what belongs to the model: the tokens that its texts begin with and
    those that end them, and the tokens that it never emits, anywhere (`suppress_tokens`, `bad_words_ids` of
    one token) or at first (`begin_suppress_tokens`), whose logits are -inf.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Tokenizer | None = None,
        name: str = "",
        feature_extractor: Any = None,
    ) -> None:
        """`feature_extractor`: transformers' own, which makes features of a waveform."""
        super().__init__(model, tokenizer, name)
        self.encoder: TextEncoder | SoundEncoder = encoder_of(model, self.name, feature_extractor)
        self._positions = Positions(model.get_decoder(), self.name)
        self.max_length = self._positions.max_length
        never = [words[0] for words in generation_option(model, "bad_words_ids") or () if len(words) == 1]
        self._never = _chosen([*never, *(generation_option(model, "suppress_tokens") or ())], model)
        self._never_first = _chosen(generation_option(model, "begin_suppress_tokens") or (), model)

    def new_cache(self, num_rows: int, num_slots: int) -> SourceCache:
        return SourceCache(num_rows, num_slots)

    def refuse_unsupported(self, model: PreTrainedModel) -> None:
        """Raise UnsupportedError for a model without an encoder, or whose masks cannot be given."""
        if not model.config.is_encoder_decoder:
            raise UnsupportedError(f"{self.name} has no encoder; open it as a TorchModel.")
        if _TAKEN - inspect.signature(model.forward).parameters.keys():
            raise UnsupportedError(
                f"{self.name} is a {type(model).__name__}, which takes no encoder outputs, cache and masks; "
                "give a model of another architecture, such as T5, BART, Marian or Whisper."
            )
        refuse_attention(model.config, self.name)

    def new_state(self, num_sequences: int, max_length: int, hearing: Hearing) -> "EncoderDecoderState":
        return EncoderDecoderState(self, num_sequences, max_length, hearing)

    def without_layers(self, skipped: Collection[int]) -> TorchModel:
        """Raise UnsupportedError: the layers of a decoder behind an encoder cannot be left out."""
        raise UnsupportedError(
            f"{self.name} is an encoder-decoder model, which cannot draft for itself without some of its "
            "layers; take another drafter."
        )

    @torch.inference_mode()
    def score(self, piece: Piece, cache: SourceCache) -> Logits:
        """Run one piece; return logits `[tokens wanted, vocabulary]`, row after row, in float32 or wider."""
        device = self.model.device
        cache.window = Window(piece.rows, torch.as_tensor(piece.slots, device=device), piece.view)
        lengths = torch.tensor(cache.source_lengths[piece.rows], device=device)
        # A row without a source sees a slot of zeros, as there has to be something to attend to.
        readable = torch.arange(cache.source_slots, device=device) < lengths.clamp(min=1)[:, None]
        wanted = torch.as_tensor(piece.wanted, device=device)
        # The output layer runs for the wanted positions alone.
        selection = self.model.get_output_embeddings().register_forward_pre_hook(
            lambda _, args: (args[0][wanted],)
        )
        try:
            with self._positions.of(piece, device):
                logits = self.model(
                    decoder_input_ids=torch.as_tensor(piece.token_ids, device=device),
                    decoder_attention_mask=attention_masks(piece, self._horizons, device, self._additive),
                    # Its shape is all that is looked at: keys and values are in the cache.
                    encoder_outputs=(torch.zeros((), device=device).expand(*readable.shape, 1),),
                    attention_mask=as_taken(readable[:, None, None], self._additive),
                    cache=cache,
                    use_cache=True,
                ).logits
        finally:
            selection.remove()
        logits[:, self._never] = -torch.inf
        begins = piece.positions[piece.wanted] == len(self.encoder.start_ids) - 1
        logits[torch.as_tensor(begins, device=device)[:, None] & self._never_first] = -torch.inf
        return on_host(logits)


class EncoderDecoderState(TorchState):
    """The caches of several rows of one EncoderDecoderModel."""

    def __init__(
        self, model: EncoderDecoderModel, num_sequences: int, max_length: int, hearing: Hearing
    ) -> None:
        super().__init__(model, num_sequences, max_length, hearing)
        self._encoder = model.encoder

    def begin(self, row: int, source: Source | None) -> None:
        """Hold a new sequence in this row; the encoder reads its source, here and once.

        Raises OptionError without a source, PromptError for one that the encoder cannot read.
        """
        if source is None:
            raise OptionError(f"{self._model.name} has an encoder; give it something to read.")
        super().begin(row, source)
        self._cache.read(row, self._encoder.read(source))

    def forward(
        self,
        token_ids: Sequence[Sequence[int]],
        num_logits: Sequence[int],
        parents: Sequence[Sequence[int] | None] | None = None,
    ) -> list[Logits]:
        """As `ModelState`; raises OptionError for a row that has not begun."""
        for row, fed in enumerate(token_ids):
            if fed and not self._cache.source_lengths[row]:
                raise OptionError(f"row {row} of {self._model.name} has read nothing yet; begin it first.")
        return super().forward(token_ids, num_logits, parents)


def _chosen(token_ids: Iterable[int], model: PreTrainedModel) -> torch.Tensor:
    """Which of the vocabulary are among these, `[vocabulary]`."""
    chosen = torch.zeros(model.config.vocab_size, dtype=torch.bool, device=model.device)
    chosen[list(token_ids)] = True
    return chosen
