"""From a source to a folder that the ONNX engine loads, and the cache of what came out."""

import hashlib
import json
import logging
import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from draftwise.errors import OptionError, UnsupportedError
from draftwise.models.cache import built_once, cache_folder
from draftwise.models.gguf import block_count
from draftwise.models.sources import Kind, Source
from draftwise.models.stage import run_stage
from draftwise.models.tokenizer_files import needs_conversion
from draftwise.progress import Progress

if TYPE_CHECKING:
    from draftwise.models.onnx.convert import Manifest

# Hidden states by the numbers of `models.base.Tap`, or what gives them for a model of so many layers.
HiddenStates = Sequence[int] | Callable[[int], Sequence[int]]
RECIPE = 2  # raised whenever a conversion of the same source comes out differently
_log = logging.getLogger("draftwise")
_NEEDED = ("onnx_ir", "onnxruntime_genai", "torch", "transformers")


def converted(source: Source, precision: str, progress: Progress, hidden_states: HiddenStates = ()) -> Path:
    """The folder of a converted source, made and cached when first asked for; see `convert_source`."""
    if source.kind is Kind.CONVERTED:
        return source.path
    exposed = _numbers(source, hidden_states)

    def build(out: Path) -> None:
        _log.info("converting %s for the onnx engine, which happens once", source.name)
        manifest = convert_source(source, out, precision=precision, progress=progress, hidden_states=exposed)
        _log.info("%s: %s, %+.3f nats a token on a fixed text", source.name, manifest.layout, manifest.loss)

    product = "-".join([precision, *(["hidden", *map(str, exposed)] if exposed else [])])
    return built_once(_key(source, product), build)


def is_converted(source: Source, precision: str) -> bool:
    """Whether the cache holds a conversion of a source."""
    return (cache_folder() / _key(source, precision)).is_dir()


def convert_source(
    source: Source,
    out: Path,
    *,
    precision: str,
    progress: Progress,
    hidden_states: HiddenStates = (),
    vocabulary: Sequence[int] = (),
) -> "Manifest":
    """Fill the empty folder `out` with what the ONNX engine loads, and say what that lost.

    `precision`: one of `models.onnx.convert.PRECISIONS`. `hidden_states`: what drafters will read.
    `vocabulary`: the tokens that a draft model may guess, none meaning all. Raises UnsupportedError for an
    architecture that cannot be exported, OptionError for a source that is converted already.
    """
    if source.kind is Kind.CONVERTED:
        raise OptionError(f"{source.name} is converted already; give the model that it came from.")
    if source.is_encoder_decoder:
        raise UnsupportedError(
            f"{source.name} is an encoder-decoder model, which the onnx engine does not run; load it with "
            "engine='torch'."
        )
    _refuse_missing(f"converting {source.name}", _NEEDED, "convert")
    from draftwise.models.onnx.convert import convert

    to_onnx = partial(
        convert,
        out=out,
        precision=precision,
        progress=progress,
        name=source.name,
        hidden_states=_numbers(source, hidden_states),
        vocabulary=vocabulary,
    )
    if source.kind is Kind.TRANSFORMERS:
        return to_onnx(source.path, tokenizer_folder=tokenizer_folder(source, progress))
    with TemporaryDirectory(dir=out, prefix="gguf-") as floats:
        run_stage("draftwise.models.gguf:to_transformers", progress, gguf_file=str(source.path), out=floats)
        return to_onnx(Path(floats), tokenizer_folder=Path(floats))


def _numbers(source: Source, hidden_states: HiddenStates) -> tuple[int, ...]:
    if callable(hidden_states):
        hidden_states = hidden_states(num_layers(source))
    return tuple(sorted(set(hidden_states)))


def num_layers(source: Source) -> int:
    """How many layers a model has, by its config or the header of its GGUF file."""
    if source.kind is Kind.GGUF:
        return block_count(source.path)
    config = json.loads((source.path / "config.json").read_text(encoding="utf-8"))
    count: int = config.get("text_config", config)["num_hidden_layers"]
    return count


def tokenizer_folder(source: Source, progress: Progress) -> Path:
    """A folder with the tokenizer.json of a source: its own, or a cached one made of what it has instead.

    Raises ModelError where that cannot be read, UnsupportedError where it cannot be a tokenizer.json.
    """
    if source.kind is Kind.GGUF:
        function, arguments = "draftwise.models.gguf:save_tokenizer", {"gguf_file": str(source.path)}
    elif needs_conversion(source.path):
        _refuse_missing(f"reading the tokenizer of {source.name}", ("sentencepiece", "transformers"), "torch")
        function = "draftwise.models.tokenizer_files:save_tokenizer"
        arguments = {"folder": str(source.path)}
    else:
        return source.path
    return built_once(
        _key(source, "tokenizer"), lambda out: run_stage(function, progress, **arguments, out=str(out))
    )


def _refuse_missing(task: str, packages: Sequence[str], extra: str) -> None:
    """Raise UnsupportedError, naming the extra, if a task needs packages that are not installed."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise UnsupportedError(f"{task} needs {', '.join(missing)}: pip install 'draftwise[{extra}]'.")


def _key(source: Source, product: str) -> str:
    """A name that another content, product or recipe does not share."""
    readable = re.sub(r"[^\w.-]+", "-", Path(source.name).name)
    digest = hashlib.sha256(json.dumps([source.identity, product, RECIPE]).encode()).hexdigest()
    return f"{readable}-{product}-{digest[:16]}"
