"""`draftwise convert`: a model for the ONNX engine, made once."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from draftwise.cli.options import numbers
from draftwise.errors import OptionError


class Precision(StrEnum):
    """How the weights are stored: int8 in the 8-bit layout that suits this processor."""

    INT8 = "int8"
    INT8_BLOCKWISE = "int8-blockwise"
    INT8_ROWWISE = "int8-rowwise"
    INT4 = "int4"
    FP32 = "fp32"


def convert(
    source: Annotated[
        str,
        typer.Argument(
            help="A hub id, a transformers folder, a GGUF file, or a bundled name.", metavar="SOURCE"
        ),
    ],
    out: Annotated[Path, typer.Option(help="The folder to write; it must be new or empty.")],
    precision: Annotated[
        Precision, typer.Option(help="How to store the weights; int4 loses much, and is for draft models.")
    ] = Precision.INT8,
    heads: Annotated[
        str | None,
        typer.Option(help="Heads that will draft for it: a folder or a hub id.", metavar="HEADS"),
    ] = None,
    hidden_states: Annotated[
        str | None,
        typer.Option(
            help="What drafters will read, as in 2,14,25,-1: what goes into these layers, -1 for the last.",
            metavar="N,M,...",
        ),
    ] = None,
) -> None:
    """Convert a model for the ONNX engine and print what that lost."""
    from draftwise.drafters.heads import layers_read
    from draftwise.models.cache import whole_or_nothing
    from draftwise.models.conversion import convert_source
    from draftwise.models.sources import find
    from draftwise.progress import shown

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OptionError(f"{out} exists already; give a new folder.")
    if heads is not None and hidden_states is not None:
        raise OptionError("give --heads or --hidden-states, one of them.")
    read = layers_read(heads) if heads is not None else numbers(int, hidden_states or "")
    with shown(None) as progress, whole_or_nothing(out) as partial:
        found = find(source, trust_remote_code=False, progress=progress)
        manifest = convert_source(found, partial, precision=precision, progress=progress, hidden_states=read)
    print(
        f"wrote {out}: {manifest.layout}, {manifest.loss:+.3f} nats a token on a fixed text "
        f"({manifest.float_nll:.3f} in float32, {manifest.nll:.3f} converted)"
    )
