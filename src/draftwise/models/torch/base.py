"""What all models of the PyTorch engine have in common."""

from abc import ABC, abstractmethod

import torch
from transformers import PreTrainedModel

from draftwise.models.torch.architecture import longest_text
from draftwise.tokenizer import Tokenizer
from draftwise.types import Logits


class TransformersModel(ABC):
    """A transformers model, on the device and in the dtype that it has, in evaluation mode."""

    width_invariant = False  # matrix products of different widths round differently
    only_drafts = False

    def __init__(self, model: PreTrainedModel, tokenizer: Tokenizer | None = None, name: str = "") -> None:
        self.name = name or model.config.name_or_path or type(model).__name__
        self.refuse_unsupported(model)
        self.model = model.eval()
        self.tokenizer = tokenizer
        config = model.config.get_text_config(decoder=True)
        self.vocab_size: int = config.vocab_size
        self.max_length = longest_text(config)
        eos = model.generation_config.eos_token_id if model.generation_config else config.eos_token_id
        self.eos_token_ids = frozenset([eos] if isinstance(eos, int) else eos or ())

    @abstractmethod
    def refuse_unsupported(self, model: PreTrainedModel) -> None:
        """Raise UnsupportedError for a model that this class cannot run."""

    @property
    def weight_bytes(self) -> int:
        return sum(weights.numel() * weights.element_size() for weights in self.model.parameters())

    @property
    def runs_on(self) -> str:
        """Library, dtype, device and threads: what the time of a pass depends on."""
        dtype = str(self.model.dtype).removeprefix("torch.")
        return f"torch {torch.__version__}, {dtype}, {self.model.device}, {torch.get_num_threads()} threads"


def on_host(logits: torch.Tensor) -> Logits:
    """Logits as numpy, in float32 or wider."""
    array: Logits = logits.to(torch.promote_types(logits.dtype, torch.float32)).cpu().numpy()
    return array
