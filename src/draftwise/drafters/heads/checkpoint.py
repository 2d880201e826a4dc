"""A published checkpoint of heads: its config, and its tensors, each of which must fit."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from draftwise.drafters.heads.backbone import Backbone
from draftwise.errors import ModelError

Module = TypeVar("Module", bound=nn.Module)
Tensors = Mapping[str, torch.Tensor]
PICKLES = ("*.bin", "*.pt")  # of tensors alone: nothing else in them is read


class Checkpoint:
    """A folder with config.json and the weights; raises ModelError where the first cannot be read."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        try:
            self.config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ModelError(
                f"{name} holds no config.json, which says what kind of heads it has; give a folder that does."
            ) from None
        except ValueError:
            raise ModelError(f"the config.json of {name} is no JSON; fetch the checkpoint again.") from None

    def integer(self, key: str, default: int | None = None, at_least: int = 1) -> int:
        """A whole number of the config; raises ModelError where it is none or too small."""
        value = self.config.get(key, default)
        if type(value) is not int or value < at_least:
            raise ModelError(
                f"the config of {self.name} has {key} = {value!r}; it must be a whole number from {at_least}."
            )
        return value

    def must_agree(self, key: str, value: int, what: str) -> None:
        """Raise ModelError if the config has a number that is not the target's."""
        stated = self.config.get(key, value)
        if stated != value:
            raise ModelError(
                f"the config of {self.name} has {key} = {stated}, but {what} is {value}; give the heads that "
                "were trained for this target."
            )

    def hidden_size_of(self, target: Backbone) -> int:
        """The width of the target's hidden states; raises ModelError if the config has another."""
        self.must_agree("hidden_size", target.width, f"the width of {target.name}")
        return target.width

    def tensors(self, prefix: str = "") -> Tensors:
        """The tensors whose names begin with `prefix`, by the rest of their names."""
        return {
            key.removeprefix(prefix): tensor for key, tensor in self._read(lambda key: key.startswith(prefix))
        }

    def _read(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, torch.Tensor]]:
        files = sorted(self._folder.glob("*.safetensors"))
        pickles = [file for pattern in PICKLES for file in sorted(self._folder.glob(pattern))]
        if not files and not pickles:
            raise ModelError(f"{self.name} holds no weights; give a folder with safetensors, .bin or .pt.")
        for file in files:
            try:
                with safe_open(file, "pt") as opened:
                    yield from ((key, opened.get_tensor(key)) for key in opened.keys() if wanted(key))  # noqa: SIM118
            except SafetensorError as error:
                raise ModelError(f"{file} cannot be read ({error}); fetch the checkpoint again.") from None
        for file in () if files else pickles:
            yield from ((key, tensor) for key, tensor in _unpickled(file).items() if wanted(key))

    def fill(self, make: Callable[[], Module], tensors: Tensors, target: Backbone) -> Module:
        """A module with these tensors, in the target's dtype and on its device.

        Raises ModelError that names a tensor which is missing, which the module has no place for, or which
        has another shape.
        """
        with torch.device("meta"):  # shapes alone: nothing is initialised that is overwritten anyway
            module = make()
        places = module.state_dict()
        fits = f"give heads that were trained for {target.name}, in the format that docs/heads.md describes."
        for key in sorted(places.keys() - tensors.keys()):
            raise ModelError(f"{self.name} lacks {key}; {fits}")
        for key in sorted(tensors.keys() - places.keys()):
            raise ModelError(f"{self.name} has {key}, which heads of its kind do not have; {fits}")
        for key, place in places.items():
            if tensors[key].shape != place.shape:
                raise ModelError(
                    f"{self.name} has {key} of shape {list(tensors[key].shape)}, where {list(place.shape)} "
                    f"is expected; {fits}"
                )
        module.load_state_dict({key: _as_in(target, tensors[key]) for key in places}, assign=True)
        return module.eval().requires_grad_(False)


def _as_in(target: Backbone, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(target.device, target.dtype if tensor.is_floating_point() else None)


def _unpickled(file: Path) -> Tensors:
    try:
        loaded = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zipfile and torch each raise their own
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(
            f"{file} cannot be read as tensors alone ({reason}); give a file of tensors, best as safetensors."
        ) from None
    if not isinstance(loaded, Mapping) or not all(isinstance(each, torch.Tensor) for each in loaded.values()):
        raise ModelError(f"{file} holds other things than tensors by name; give the weights alone.")
    return loaded
