"""Options that several subcommands share."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from draftwise.errors import OptionError

if TYPE_CHECKING:
    from draftwise.models.base import LanguageModel
    from draftwise.models.conversion import HiddenStates

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
EngineOption = Annotated[EngineName, typer.Option(help="What runs the models; auto: onnx, torch on a GPU.")]
DtypeOption = Annotated[
    str | None,
    typer.Option(help="onnx: int8, float32, or int4 for draft models; torch: float32, bfloat16 or float16."),
]
DeviceOption = Annotated[str | None, typer.Option(help="cpu, cuda or mps, as PyTorch names them.")]
ThreadsOption = Annotated[int | None, typer.Option(help="Threads for each model.")]
ChatOption = Annotated[
    bool | None,
    typer.Option("--chat/--raw", help="As chat messages; the default where the model has a template."),
]
TemperatureOption = Annotated[float, typer.Option(help="0 takes the most likely token.")]
TopKOption = Annotated[int | None, typer.Option(help="Sample from the k most likely tokens.")]
TopPOption = Annotated[float, typer.Option(help="Sample from the fewest tokens with this much mass.")]
MinPOption = Annotated[
    float, typer.Option(help="Sample from tokens at least this likely next to the likeliest.")
]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with a model.")
]


@dataclass(frozen=True)
class Loader:
    """Loads the models of a command line, as its options say."""

    engine: EngineName
    dtype: str | None
    device: str | None
    threads: int | None
    trust_remote_code: bool

    def __call__(self, source: str, hidden_states: "HiddenStates" = ()) -> "LanguageModel":
        from draftwise.models.load import load

        return load(source, hidden_states=hidden_states, **vars(self))


def draft_tokens(text: str) -> int | Literal["auto"] | None:
    """What --num-draft-tokens asks for, as `stream` takes it; raises OptionError for anything else."""
    if text in (AUTO, OWN):
        return "auto" if text == AUTO else None
    try:
        return int(text)
    except ValueError:
        raise OptionError(f'--num-draft-tokens is "{text}"; give a number, {AUTO} or {OWN}.') from None


def numbers(kind: Callable[[str], Number], text: str) -> tuple[Number, ...]:
    """The numbers in "1,2,3", of `kind`; raises OptionError where one of them is none."""
    return tuple(number(kind, item) for item in listed(text))


def listed(text: str) -> list[str]:
    """What stands between the commas; nothing in an empty text."""
    return text.split(",") if text else []


def number(kind: Callable[[str], Number], text: str) -> Number:
    try:
        return kind(text)
    except ValueError:
        raise OptionError(
            f'"{text}" is not a number; give one, with commas where several may be given.'
        ) from None
