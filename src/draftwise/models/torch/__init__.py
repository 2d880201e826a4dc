"""The PyTorch engine: decoder-only and encoder-decoder transformers models as LanguageModels."""

from draftwise.models.torch.encoder_decoder import EncoderDecoderModel
from draftwise.models.torch.engine import TorchModel
from draftwise.models.torch.loading import load_torch

__all__ = ["EncoderDecoderModel", "TorchModel", "load_torch"]
