"""A decoder with some of its layers left out, sharing all its weights."""

import copy
from collections.abc import Collection
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel


class SkippedLayer(nn.Module):
    """Stands where a layer was: what comes in goes out, and the layers after it keep their numbers."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.attention_type = getattr(layer, "attention_type", None)  # what some decoders choose a mask by

    def forward(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return hidden_states


def without_layers(
    model: PreTrainedModel, layers: nn.ModuleList, skipped: Collection[int]
) -> PreTrainedModel:
    """The same model without those of its `layers` whose numbers, from 0, are in `skipped`.

    Only the modules around the layers are copied, with the same parameters.
    """
    path = next(path for path, module in model.named_modules() if module is layers)
    shallow = parent = _copied(model)
    *containers, last = path.split(".")
    for container in containers:
        child = _copied(parent._modules[container])
        parent._modules[container] = child
        parent = child
    parent._modules[last] = nn.ModuleList(
        SkippedLayer(layer) if number in skipped else layer for number, layer in enumerate(layers)
    )
    return shallow


def _copied(module: Any) -> Any:
    """A module of its own with the same parameters and the same children."""
    made = copy.copy(module)
    made._modules = dict(module._modules)
    return made
