"""The command line: one file for each subcommand. Backends are imported when a command runs."""

import os
import sys
from collections.abc import Sequence
from typing import TextIO

import typer

from draftwise.cli.bench import bench
from draftwise.cli.convert import convert
from draftwise.cli.generate import generate
from draftwise.cli.ngram import ngram
from draftwise.cli.plan import plan
from draftwise.errors import DraftwiseError

BAD_INPUT, INTERRUPTED = 2, 130

app = typer.Typer(
    name="draftwise",
    help="Lossless speculative decoding: faster generation, the same words.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (generate, plan, bench, convert, ngram):
    app.command()(command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (the process's own for None) and return its exit code: 2 after bad input."""
    os.environ.setdefault("TQDM_DISABLE", "1")  # what this command does, it shows itself
    for stream in (sys.stdout, sys.stderr):
        _never_fail_to_encode(stream)
    try:
        return app(args=argv, prog_name="draftwise", standalone_mode=False) or 0
    except (DraftwiseError, typer.TyperException) as error:
        print(f"error: {_sentence(error)}", file=sys.stderr)
        return BAD_INPUT
    except typer.Abort:
        return INTERRUPTED


def _sentence(error: DraftwiseError | typer.TyperException) -> str:
    message = error.format_message() if isinstance(error, typer.TyperException) else str(error)
    return " ".join(message.split()).removesuffix(".") + "."


def _never_fail_to_encode(stream: TextIO) -> None:
    """A terminal that lacks a character shows a question mark."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure:
        reconfigure(errors="replace")
