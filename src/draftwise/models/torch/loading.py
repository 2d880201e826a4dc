"""Load a transformers checkpoint or a GGUF file onto a device."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import (
    MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING,
    AutoConfig,
    AutoFeatureExtractor,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSpeechSeq2Seq,
)

from draftwise.checks import whole_number
from draftwise.errors import ModelError, OptionError
from draftwise.models.torch.architecture import is_recurrent
from draftwise.models.torch.encoder_decoder import EncoderDecoderModel
from draftwise.models.torch.engine import TorchModel
from draftwise.models.torch.recurrent import RecurrentModel
from draftwise.tokenizer import Tokenizer

DTYPES: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


def load_torch(
    source: str | Path,
    *,
    device: str | None = None,
    dtype: str | None = None,
    trust_remote_code: bool = False,
    threads: int | None = None,
    tokenizer: Tokenizer | None = None,
) -> TorchModel | RecurrentModel:
    """Load a model from a transformers folder, a hub id or a GGUF file, whose weights are dequantised.

    It is an EncoderDecoderModel where its config says so.

    `device`: as PyTorch names it; None takes CUDA, then MPS, then the CPU. `dtype`: None takes float32 on a
    CPU and bfloat16 elsewhere. Weights come from safetensors or GGUF only, and code that comes with the model
    runs only with `trust_remote_code`. `threads`: of all of PyTorch in this process.

    Raises OptionError for a device or dtype that is not there, ModelError for a model that cannot be read,
    UnsupportedError for one whose cache cannot go back.
    """
    target_device = choose_device(device)
    target_dtype = choose_dtype(dtype, target_device)
    if threads is not None:
        if whole_number("threads", threads) < 1:
            raise OptionError(f"threads is {threads}; give at least 1.")
        torch.set_num_threads(threads)
    path = Path(source)
    is_gguf = path.suffix.lower() == ".gguf" and path.is_file()
    try:
        loader = AutoModelForCausalLM if is_gguf else _loader(source, trust_remote_code)
        model = loader.from_pretrained(
            path.parent if is_gguf else source,
            gguf_file=path.name if is_gguf else None,
            use_safetensors=True,
            dtype=target_dtype,
            trust_remote_code=trust_remote_code,
        )
    except Exception as error:  # transformers, safetensors, gguf and the hub each raise their own
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".:")
        raise ModelError(
            f"{source} cannot be read as a language model ({reason}); give a whole GGUF file, "
            "or a hub id or transformers folder with safetensors."
        ) from error
    model = model.to(target_device)
    if not model.config.is_encoder_decoder:
        kind = RecurrentModel if is_recurrent(model) else TorchModel
        return kind(model, tokenizer, str(source))
    extractor = None if model.main_input_name == "input_ids" else _feature_extractor(source)
    return EncoderDecoderModel(model, tokenizer, str(source), extractor)


def _feature_extractor(source: str | Path) -> Any:
    """The one that came with a checkpoint; None if none did."""
    try:
        return AutoFeatureExtractor.from_pretrained(source)
    except OSError:
        return None


def _loader(source: str | Path, trust_remote_code: bool) -> Any:
    """The class of transformers that loads a model of this kind with its output layer."""
    config = AutoConfig.from_pretrained(source, trust_remote_code=trust_remote_code)
    if not config.is_encoder_decoder:
        return AutoModelForCausalLM
    return (
        AutoModelForSpeechSeq2Seq
        if type(config) in MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING
        else AutoModelForSeq2SeqLM
    )


def choose_device(name: str | None) -> torch.device:
    """The device of that name, or the best one here; raises OptionError if it cannot be used."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device).cpu()
    except Exception as error:  # an unknown name, an index too high, a build without the device: each its own
        raise OptionError(
            f'device "{name}" cannot be used here; give "cpu", "cuda" or "mps" as the machine has.'
        ) from error
    return device


def choose_dtype(name: str | None, device: torch.device) -> torch.dtype:
    """The dtype of that name, or the usual one of the device; raises OptionError for an unknown name."""
    if name is None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if name not in DTYPES:
        raise OptionError(f'dtype "{name}" is not one of {", ".join(DTYPES)}.')
    return DTYPES[name]
