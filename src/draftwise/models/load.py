"""`load`: a model from wherever it is, on the engine that suits the machine."""

import logging
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from draftwise.checks import of_kind
from draftwise.errors import ModelError, OptionError, UnsupportedError
from draftwise.models.base import LanguageModel
from draftwise.models.conversion import HiddenStates, converted, tokenizer_folder
from draftwise.models.sources import Kind, Source, find
from draftwise.progress import Progress, shown
from draftwise.tokenizer import Tokenizer

ENGINES = ("auto", "onnx", "torch")
PRECISIONS = {"int8": "int8", "int4": "int4", "float32": "fp32"}  # of the onnx engine, by dtype
DTYPES = (*PRECISIONS, "bfloat16", "float16", "float64")

_log = logging.getLogger("draftwise")


def load(
    source: str | Path,
    *,
    engine: str = "auto",
    dtype: str | None = None,
    device: str | None = None,
    threads: int | None = None,
    trust_remote_code: bool = False,
    hidden_states: HiddenStates = (),
    progress: Progress | None = None,
) -> LanguageModel:
    """Load a target or a draft model.

    `source`: a hub id, a transformers folder, a GGUF file, a folder made by `draftwise convert`, or a bundled
    name (`smollm2-135m-instruct`). `engine`: "onnx" converts the model once and keeps the result in
    ~/.cache/draftwise ($DRAFTWISE_CACHE); "torch" runs it as it is; "auto" takes torch on a GPU, else onnx,
    and falls to torch, saying so, for an architecture that cannot be converted. `dtype`: int8 (the default),
    int4 (for a draft model: half the size, and too lossy for a target) or float32 on onnx; float32, bfloat16
    or float16 on torch. `device`: as PyTorch names it. `threads`: of one pass. `trust_remote_code`: let code
    that comes with the model run. `hidden_states`: what drafters will read, such as `layers_read(heads)`;
    onnx converts a model with those, torch has them all. `progress`: None draws bars on standard error where
    that is a terminal.

    Raises ModelError for a model that cannot be found or read, OptionError for options that do not go
    together, UnsupportedError for an architecture that the engine cannot run.
    """
    of_kind("source", source, str | Path, "the name of a model or a path")
    if engine not in ENGINES:
        raise OptionError(f'engine "{engine}" is not one of {", ".join(ENGINES)}.')
    if dtype is not None and dtype not in DTYPES:
        raise OptionError(f'dtype "{dtype}" is not one of {", ".join(DTYPES)}.')
    with shown(progress) as report:
        found = find(source, trust_remote_code=trust_remote_code, progress=report)
        chosen = _choose_engine(found, dtype, device) if engine == "auto" else engine
        _refuse_contradictions(chosen, found, dtype, device)
        if chosen == "onnx":
            try:
                return _load_onnx(found, dtype, threads, hidden_states, report)
            except UnsupportedError as error:
                if engine == "onnx":
                    raise
                _log.warning("%s It runs on the torch engine instead.", error)
        return _load_torch(found, dtype, device, threads, trust_remote_code, report)


def load_tokenizer(source: str | Path, *, progress: Progress | None = None) -> Tokenizer:
    """The tokenizer of a model, without the model; `source` and the errors are those of `load`."""
    with shown(progress) as report:
        found = find(source, trust_remote_code=False, progress=report)
        return Tokenizer.from_folder(tokenizer_folder(found, report), found.name)


def _load_onnx(
    found: Source, dtype: str | None, threads: int | None, hidden_states: HiddenStates, progress: Progress
) -> LanguageModel:
    from draftwise.models.onnx.engine import load_onnx

    folder = converted(found, PRECISIONS[dtype or "int8"], progress, hidden_states)
    progress(f"loading {found.name}", 0.0)
    model = load_onnx(folder, threads=threads, name=found.name)
    progress(f"loading {found.name}", 1.0)
    layout = model.manifest.layout
    if dtype and not layout.startswith(dtype):
        raise OptionError(f"{found.name} was converted to {layout}, not {dtype}; convert its source again.")
    return model


def _load_torch(
    found: Source,
    dtype: str | None,
    device: str | None,
    threads: int | None,
    trust_remote_code: bool,
    progress: Progress,
) -> LanguageModel:
    try:
        from draftwise.models.torch import load_torch
    except ModuleNotFoundError as error:
        raise ModelError(
            f"the torch engine needs {error.name}, which is not installed: pip install 'draftwise[torch]'."
        ) from None
    tokenizer = Tokenizer.from_folder(tokenizer_folder(found, progress), found.name)
    progress(f"loading {found.name}", 0.0)
    with _without_transformers_bars():
        model = load_torch(
            found.path,
            device=device,
            dtype=dtype,
            trust_remote_code=trust_remote_code,
            threads=threads,
            tokenizer=tokenizer,
        )
    progress(f"loading {found.name}", 1.0)
    model.name = found.name
    return model


@contextmanager
def _without_transformers_bars() -> Iterator[None]:
    from transformers.utils import logging as transformers_logging

    enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            transformers_logging.enable_progress_bar()


def _choose_engine(found: Source, dtype: str | None, device: str | None) -> str:
    """onnx on a CPU and torch on a GPU, unless the source, the dtype or the device settles it."""
    if found.kind is Kind.CONVERTED or dtype in ("int8", "int4"):
        return "onnx"
    if dtype is not None and dtype not in PRECISIONS:
        return "torch"
    on_cpu = device == "cpu" if device else not _has_gpu()
    return "onnx" if on_cpu else "torch"


def _has_gpu() -> bool:
    """Whether PyTorch can use a GPU; it is imported, which takes seconds, only where there may be one."""
    driver_files = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
    possible = (
        sys.platform == "darwin" or shutil.which("nvidia-smi") or any(map(os.path.exists, driver_files))
    )
    if not possible or find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available() or torch.backends.mps.is_available()


def _refuse_contradictions(engine: str, found: Source, dtype: str | None, device: str | None) -> None:
    if engine == "torch":
        if found.kind is Kind.CONVERTED:
            raise OptionError(
                f"{found.name} was converted for the onnx engine; give torch the model it came from."
            )
        return
    if device not in (None, "cpu"):
        raise OptionError(f"the onnx engine runs on the CPU, not on device {device}; take the torch engine.")
    if dtype is not None and dtype not in PRECISIONS:
        raise OptionError(
            f'dtype "{dtype}" is not one of {", ".join(PRECISIONS)}, which the onnx engine runs.'
        )
