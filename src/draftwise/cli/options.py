"""Options that several subcommands share."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, TypeVar

import typer

from draftwise.errors import OptionError

Number = TypeVar("Number")
DEFAULT_TARGET = "smollm2-135m-instruct"


class EngineName(StrEnum):
    """What runs a model."""

    AUTO = "auto"
    ONNX = "onnx"
    TORCH = "torch"


TargetOption = Annotated[
    str,
    typer.Option(
        help="The model: a hub id, a transformers folder, a GGUF file, a folder made by draftwise convert, "
        "or a bundled name.",
        metavar="MODEL",
    ),
]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with a model.")
]


def numbers(kind: Callable[[str], Number], text: str) -> tuple[Number, ...]:
    """The numbers in "1,2,3", of `kind`; raises OptionError where one of them is none."""
    return tuple(_number(kind, item) for item in text.split(",") if text)


def _number(kind: Callable[[str], Number], text: str) -> Number:
    try:
        return kind(text)
    except ValueError:
        raise OptionError(f'"{text}" is not a number; give numbers with commas between.') from None
