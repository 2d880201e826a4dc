"""The PyTorch engine: any decoder-only transformers model as a LanguageModel."""

from draftwise.models.torch.engine import TorchModel
from draftwise.models.torch.loading import load_torch

__all__ = ["TorchModel", "load_torch"]
