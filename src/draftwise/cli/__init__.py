"""The command line: one file for each subcommand. Backends are imported when a command runs."""

import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, TextIO

import typer

from draftwise.cli.audit import audit
from draftwise.cli.bench import bench
from draftwise.cli.convert import convert
from draftwise.cli.generate import generate
from draftwise.cli.ngram import ngram
from draftwise.cli.paper import paper
from draftwise.cli.plan import plan
from draftwise.errors import DraftwiseError

BAD_INPUT, INTERRUPTED = 2, 130

app = typer.Typer(
    name="draftwise",
    help="Lossless speculative decoding: faster generation, the same words.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"draftwise {version('draftwise')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """What stands before a subcommand."""


for command in (generate, plan, bench, audit, paper, convert, ngram):
    app.command()(command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (the process's own for None) and return its exit code: 2 after bad input."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("draftwise").setLevel(logging.INFO)
    os.environ.setdefault("TQDM_DISABLE", "1")  # what this command does, it shows itself
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        _never_fail_to_encode(stream)
    try:
        code = app(args=argv, prog_name="draftwise", standalone_mode=False) or 0
        sys.stdout.flush()
        return code
    except (DraftwiseError, typer.TyperException) as error:
        print(f"error: {_sentence(error)}", file=sys.stderr)
        return BAD_INPUT
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return 1  # whoever was reading has read enough
    except OSError as error:
        _discard_output()
        print(f"error: the output cannot be written ({error.strerror}).", file=sys.stderr)
        return BAD_INPUT


def _sentence(error: DraftwiseError | typer.TyperException) -> str:
    message = error.format_message() if isinstance(error, typer.TyperException) else str(error)
    return " ".join(message.split()).removesuffix(".") + "."


def _nowhere() -> TextIO:
    return open(os.devnull, "w")


def _discard_output() -> None:
    """What is still in the buffer of standard output would fail once more when the process ends."""
    sys.stdout = _nowhere()


def _never_fail_to_encode(stream: TextIO) -> None:
    """A terminal that lacks a character shows a question mark."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure:
        reconfigure(errors="replace")
