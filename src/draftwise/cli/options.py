"""Options that several subcommands share."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Literal, TypeVar

import typer

from draftwise.errors import OptionError

Number = TypeVar("Number")
DEFAULT_TARGET = "smollm2-135m-instruct"
AUTO, OWN = "auto", "own"


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


def draft_tokens(text: str) -> int | Literal["auto"] | None:
    """What --num-draft-tokens asks for, as `stream` takes it; raises ValueError where it is no number."""
    return "auto" if text == AUTO else None if text == OWN else int(text)


def numbers(kind: Callable[[str], Number], text: str) -> tuple[Number, ...]:
    """The numbers in "1,2,3", of `kind`; raises OptionError where one of them is none."""
    return tuple(number(kind, item) for item in text.split(",") if text)


def number(kind: Callable[[str], Number], text: str) -> Number:
    try:
        return kind(text)
    except ValueError:
        raise OptionError(
            f'"{text}" is not a number; give one, with commas where several may be given.'
        ) from None
