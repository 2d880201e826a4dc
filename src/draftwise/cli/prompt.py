"""The prompt of a command line: an argument, a file, standard input; raw text or a chat message."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from draftwise.errors import DraftwiseError, OptionError, PromptError

if TYPE_CHECKING:
    from draftwise.models.base import LanguageModel
    from draftwise.planning.prompts import Prompt as Line
    from draftwise.prompt import Prompt


def prompt_text(argument: str | None, file: Path | None) -> str:
    """The argument, the file's text, or both with a blank line between; with neither, or "-", standard input.

    Raises PromptError for what cannot be read or is not UTF-8, OptionError where there is no prompt at all.
    """
    if argument == "-" and file is None:
        argument = None
    parts = [*([] if argument is None else [argument]), *([read_text(file)] if file else [])]
    if parts:
        return "\n\n".join(parts)
    if sys.stdin is None or sys.stdin.isatty():
        raise OptionError("no prompt was given; give it as an argument, with --file, or on standard input.")
    return _decoded(sys.stdin.buffer.read(), "standard input")


def read_text(file: Path) -> str:
    """The text of a UTF-8 file; raises PromptError, which names the file."""
    try:
        return _decoded(file.read_bytes(), str(file))
    except OSError as error:
        raise PromptError(f"{file} cannot be read ({error.strerror}); give a text file.") from None


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PromptError(f"{name} is not UTF-8 text (byte {error.start}); give it in UTF-8.") from None


def as_prompt(prompt: "Prompt", chat: bool | None, model: "LanguageModel") -> "Prompt":
    """A chat message of text where that was asked for or (None) the model has a template; else the prompt."""
    if not isinstance(prompt, str):
        return prompt
    if chat is None:
        chat = model.tokenizer is not None and model.tokenizer.has_chat_template
    return [{"role": "user", "content": prompt}] if chat else prompt


def encoded(line: "Line", chat: bool | None, model: "LanguageModel") -> list[int]:
    """The token ids of a prompt of a file; raises what `encode_prompt` raises, naming file and line."""
    from draftwise.prompt import encode_prompt

    with naming(line.where):
        return encode_prompt(model, as_prompt(line.content, chat, model))


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Put before an error where the fault is."""
    try:
        yield
    except DraftwiseError as error:
        raise type(error)(f"{where}: {error}") from None
