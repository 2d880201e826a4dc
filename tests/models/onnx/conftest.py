"""A tiny random decoder, exported once, in every layout."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from draftwise.models.onnx.convert import convert
from draftwise.models.onnx.engine import OnnxModel, load_onnx
from draftwise.models.onnx.export import export
from draftwise.progress import Progress

VOCAB_SIZE = 300
MAX_LENGTH = 600


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A transformers folder: Qwen2 with biases, grouped heads, an untied head, a width 64 does not divide."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=96,
        intermediate_size=200,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=MAX_LENGTH,
        initializer_range=0.2,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=3,
    )
    folder = tmp_path_factory.mktemp("tiny") / "tiny-qwen2"
    Qwen2ForCausalLM(config).eval().save_pretrained(folder)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE(dict(zip(alphabet, range(len(alphabet)), strict=True)), []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(folder)
    return folder


@dataclass(frozen=True)
class Conversion:
    """What `draftwise convert` writes, and the progress that it reports."""

    folder: Path
    progress: list[tuple[str, float]]


@pytest.fixture(scope="session")
def exported(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """`export` of the source, of which the builder's work is done once."""
    folder = tmp_path_factory.mktemp("exported")
    reported: list[tuple[str, float]] = []
    decoder = export(source, folder, lambda *at: reported.append(at))

    def copied(_: Path, out: Path, progress: Progress) -> dict[str, Any]:
        shutil.copytree(folder, out, dirs_exist_ok=True)
        for at in reported:
            progress(*at)
        return decoder

    return copied


@pytest.fixture(scope="session", params=["fp32", "int8-blockwise", "int8-rowwise"])
def conversion(
    request: pytest.FixtureRequest,
    source: Path,
    exported: Callable[..., dict[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Conversion:
    """The source converted to each layout."""
    made = Conversion(tmp_path_factory.mktemp("converted") / "tiny", [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("draftwise.models.onnx.convert.export", exported)
        convert(source, made.folder, precision=request.param, progress=lambda *at: made.progress.append(at))
    return made


@pytest.fixture(scope="session")
def converted(conversion: Conversion) -> Path:
    return conversion.folder


@pytest.fixture(scope="session")
def model(converted: Path) -> OnnxModel:
    return load_onnx(converted)
