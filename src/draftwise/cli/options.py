"""Options that several subcommands share."""

from enum import StrEnum
from typing import Annotated

import typer

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
