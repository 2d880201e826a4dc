"""`draftwise ngram`: count an n-gram model from text files."""

from pathlib import Path
from typing import Annotated

import typer

from draftwise.cli.drafting import NGRAM_ORDER
from draftwise.cli.options import DEFAULT_TARGET, TargetOption


def ngram(
    files: Annotated[list[Path], typer.Argument(help="UTF-8 text files.")],
    out: Annotated[Path, typer.Option(help="The file to write.")],
    target: TargetOption = DEFAULT_TARGET,
    order: Annotated[int, typer.Option(help="Tokens in the longest n-gram.")] = NGRAM_ORDER,
) -> None:
    """Count an n-gram model with the target's tokenizer, for draftwise generate --ngram."""
    from draftwise.drafters.ngram import NgramModel
    from draftwise.models.load import load_tokenizer

    model = NgramModel.from_text_files(files, load_tokenizer(target), order)
    model.save(out)
    counted = "1 file" if len(files) == 1 else f"{len(files)} files"
    print(f"wrote {out}: {order}-grams of {counted} over {model.vocab_size} tokens")
