"""`draftwise convert`: a model for the ONNX engine, made once."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from draftwise.cli.options import numbers
from draftwise.errors import OptionError

VOCABULARY = 1 << 15  # of 2502.14856


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
    corpus: Annotated[
        list[Path] | None,
        typer.Option(
            help="For a draft model: UTF-8 text like what it is to write. It then guesses only tokens that "
            "come often there, and each takes it less time. May be given several times."
        ),
    ] = None,
    vocabulary: Annotated[
        int | None,
        typer.Option(help=f"How many tokens those are; with --corpus {VOCABULARY:,}.", min=1, metavar="N"),
    ] = None,
) -> None:
    """Convert a model for the ONNX engine and print what that lost."""
    from draftwise.drafters.heads import layers_read
    from draftwise.drafters.ngram import NgramModel
    from draftwise.models.cache import whole_or_nothing
    from draftwise.models.conversion import convert_source
    from draftwise.models.load import load_tokenizer
    from draftwise.models.sources import find
    from draftwise.progress import shown

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OptionError(f"{out} exists already; give a new folder.")
    if heads is not None and hidden_states is not None:
        raise OptionError("give --heads or --hidden-states, one of them.")
    if vocabulary is not None and not corpus:
        raise OptionError(
            "--vocabulary is of the most frequent tokens of a text; give one, with --corpus FILE."
        )
    read = layers_read(heads) if heads is not None else numbers(int, hidden_states or "")
    with shown(None) as progress, whole_or_nothing(out) as partial:
        found = find(source, trust_remote_code=False, progress=progress)
        known: set[int] = set()
        if corpus:
            tokenizer = load_tokenizer(source, progress=progress)
            counted = NgramModel.from_text_files(corpus, tokenizer, order=1)
            known = {*counted.most_frequent(vocabulary or VOCABULARY), *tokenizer.eos_token_ids}
        manifest = convert_source(
            found,
            partial,
            precision=precision,
            progress=progress,
            hidden_states=read,
            vocabulary=sorted(known),
        )
    guessing = f", guessing {len(known):,} of {manifest.vocab_size:,} tokens" if known else ""
    print(
        f"wrote {out}: {manifest.layout}{guessing}, {manifest.loss:+.3f} nats a token on a fixed text "
        f"({manifest.float_nll:.3f} in float32, {manifest.nll:.3f} converted)"
    )
