"""The PyTorch engine: decoder-only, encoder-decoder and recurrent transformers models as LanguageModels."""

from draftwise.models.torch.encoder_decoder import EncoderDecoderModel
from draftwise.models.torch.engine import TorchModel
from draftwise.models.torch.loading import load_torch
from draftwise.models.torch.recurrent import RecurrentModel

__all__ = ["EncoderDecoderModel", "RecurrentModel", "TorchModel", "load_torch"]
