"""Hidden states of the layers that somebody reads, heard by hooks while a pass runs."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from draftwise.errors import OptionError, UnsupportedError
from draftwise.models.base import Tap


class Hearing:
    """Fills taps, pass by pass; nothing is kept of the layers that no tap names.

    Raises OptionError for a layer that the model lacks.
    """

    def __init__(self, model: PreTrainedModel, taps: Sequence[Tap], name: str) -> None:
        self._taps = taps
        self._sources: dict[int, nn.Module] = {}  # by number of hidden state: what goes into it, or comes out
        if not taps:
            return
        self._decoder, layers = decoder_and_layers(model, name)
        for number in sorted({number for tap in taps for number in tap.layers}):
            if not -1 <= number <= len(layers):
                raise OptionError(
                    f"there is no hidden state {number} in {name}, which has {len(layers)} layers; give 0 "
                    "to that number, or -1 for the last."
                )
            self._sources[number] = layers[number] if 0 <= number < len(layers) else self._decoder
        self._heard: list[dict[int, list[torch.Tensor]]] = []

    def begin(self, num_rows: int) -> None:
        """Forget what was heard before."""
        self._heard = [{number: [] for number in self._sources} for _ in range(num_rows)]

    @contextmanager
    def of(self, rows: slice) -> Iterator[None]:
        """Listen to one run of the model, which is of these rows."""
        with ExitStack() as hooks:
            for number, module in self._sources.items():
                keep = partial(self._keep, rows, number)
                hook = (
                    module.register_forward_hook(lambda _, __, output, keep=keep: keep(output[0]))
                    if module is self._decoder
                    else module.register_forward_pre_hook(partial(_hear_input, keep), with_kwargs=True)
                )
                hooks.callback(hook.remove)
            yield

    def _keep(self, rows: slice, number: int, hidden: torch.Tensor) -> None:
        for heard, row in zip(self._heard[rows], hidden, strict=True):
            heard[number].append(row)

    def copy(self, row: int, to: int) -> None:
        """Let what was heard of one row be what was heard of another."""
        for tap in self._taps:
            tap.rows = [tap.rows[row if index == to else index] for index in range(len(tap.rows))]

    def end(self, num_tokens: Sequence[int]) -> None:
        """Hand out what was heard of the tokens fed to each row: padding follows them."""
        for tap in self._taps:
            tap.rows = [
                [_joined(heard[number])[:count] for number in tap.layers] if count else []
                for heard, count in zip(self._heard, num_tokens, strict=True)
            ]


def _hear_input(keep: Any, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    keep(args[0] if args else kwargs["hidden_states"])


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def decoder_and_layers(model: PreTrainedModel, name: str) -> tuple[nn.Module, nn.ModuleList]:
    """The part of a model that holds its list of layers and ends with the last norm, and that list.

    Raises UnsupportedError where no list has as many layers as the config says.
    """
    num_layers = model.config.get_text_config(decoder=True).num_hidden_layers
    around = model.get_decoder()
    for path, part in around.named_modules():
        if isinstance(part, nn.ModuleList) and len(part) == num_layers:
            return around.get_submodule(path.rpartition(".")[0]), part
    raise UnsupportedError(
        f"{name} keeps its {num_layers} layers in no list, so that their hidden states cannot be read; "
        "give a model of another architecture."
    )
