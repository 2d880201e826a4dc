"""What heads share with the target that they were trained for, on whatever engine it runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import nn

from draftwise.errors import UnsupportedError
from draftwise.models.base import LanguageModel
from draftwise.models.onnx.engine import OnnxModel
from draftwise.models.torch import TorchModel


@dataclass(frozen=True, eq=False, slots=True)
class Backbone:
    """A target as its heads see it; they take the device and dtype of its embedding.

    `embedding`: `[vocabulary, width]`. `output`: from what the last norm gives to logits.
    """

    name: str
    vocab_size: int
    num_layers: int
    embedding: torch.Tensor
    output: nn.Module

    @property
    def width(self) -> int:
        return self.embedding.shape[1]

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    @classmethod
    def of(cls, target: LanguageModel) -> Self:
        """Raises UnsupportedError for a target whose hidden states cannot be read."""
        match target:
            case TorchModel():
                embedding = target.model.get_input_embeddings().weight.detach()
                output = target.model.get_output_embeddings()
            case OnnxModel():
                embedding, output = _weights_beside(target)
            case _:
                raise UnsupportedError(
                    f"{target.name} hands out no hidden states, which heads read; load it with the torch or "
                    "the onnx engine."
                )
        return cls(target.name, target.vocab_size, target.num_layers, embedding, output)


def _weights_beside(target: OnnxModel) -> tuple[torch.Tensor, nn.Module]:
    """The embedding and the output layer that a conversion for heads has left."""
    if target.shared_weights is None:
        raise UnsupportedError(
            f"{target.name} was converted without hidden states, which heads read; convert it again with "
            "--heads HEADS (in Python, load takes hidden_states), or load it with the torch engine."
        )
    from safetensors.torch import load_file

    weights: Mapping[str, torch.Tensor] = load_file(target.shared_weights)
    embedding, bias = weights["embedding.weight"], weights.get("output.bias")
    with torch.device("meta"):
        output = nn.Linear(embedding.shape[1], embedding.shape[0], bias=bias is not None)
    parts = {"weight": weights.get("output.weight", embedding), **({} if bias is None else {"bias": bias})}
    output.load_state_dict(parts, assign=True)
    return embedding, output.requires_grad_(False)
