"""GGUF files: transformers reads them, into a folder of float32 weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from draftwise.errors import ModelError
from draftwise.progress import Progress

MAGIC = b"GGUF"


def check_magic(file: Path) -> None:
    """Raise ModelError unless the file begins as a GGUF file does."""
    try:
        with file.open("rb") as opened:
            begin = opened.read(len(MAGIC))
    except OSError as error:
        raise ModelError(f"{file} cannot be read ({error.strerror}); give a readable GGUF file.") from None
    if begin != MAGIC:
        raise ModelError(
            f"{file} is not a GGUF file; give one, a transformers folder, or one made by draftwise convert."
        )


def block_count(file: Path) -> int:
    """How many layers the model in a GGUF file has; raises ModelError where the file cannot be read."""
    fields = _header(file).fields
    with _reading(file):
        architecture = fields["general.architecture"].contents()
        return int(fields[f"{architecture}.block_count"].contents())


def to_transformers(gguf_file: str, out: str, *, progress: Progress) -> None:
    """Write the model and its tokenizer to the folder `out` as transformers saves them, in float32.

    Takes up to twice the float model in memory. Raises ModelError where the file cannot be read.
    """
    save_tokenizer(gguf_file, out, progress=progress)
    import torch
    from transformers import AutoModelForCausalLM

    with _reading(Path(gguf_file)) as where:
        model, report = AutoModelForCausalLM.from_pretrained(
            **where, dtype=torch.float32, output_loading_info=True
        )
        if report["missing_keys"]:  # transformers would fill them with random numbers
            raise ValueError(f"it lacks {min(report['missing_keys'])}")
    progress("reading the GGUF file", 0.8)
    # The weights are plain floats now; saving must not look for the quantisation that they came in.
    del model.config.quantization_config
    model.is_quantized = False
    model.hf_quantizer = None
    model.save_pretrained(out)
    progress("reading the GGUF file", 1.0)


def save_tokenizer(gguf_file: str, out: str, *, progress: Progress) -> None:
    """Write the tokenizer in a GGUF file to the folder `out`; raises ModelError if the file is not whole."""
    _header(Path(gguf_file))  # before the imports, which take longer
    from transformers import AutoTokenizer

    progress("reading the GGUF file", 0.0)
    with _reading(Path(gguf_file)) as where:
        tokenizer = AutoTokenizer.from_pretrained(**where)
    tokenizer.save_pretrained(out)
    progress("reading the GGUF file", 0.2)


def _header(file: Path) -> Any:
    """What a GGUF file says of itself; raises ModelError where the file ends before what it lists."""
    from gguf import GGUFReader

    try:
        return GGUFReader(file)  # which maps each tensor to its bytes
    except Exception as error:  # numpy's, for bytes that are not there
        raise ModelError(
            f"{file} cannot be read as GGUF to the end of what its header lists ({_reason(error)}); fetch it "
            "again."
        ) from None


@contextmanager
def _reading(file: Path) -> Iterator[dict[str, str]]:
    """Where transformers finds the file; what it raises over a broken one becomes a ModelError."""
    try:
        yield {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    except Exception as error:  # numpy's, struct's, transformers' own: a broken file breaks anywhere
        raise ModelError(
            f"{file} cannot be read as GGUF ({_reason(error)}); if it was cut short fetch it again, and if "
            "transformers does not know its architecture give another model."
        ) from None


def _reason(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
