"""Conversion: what is written, what is refused, what was lost."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from draftwise.errors import ModelError, UnsupportedError
from draftwise.models.onnx.convert import convert
from draftwise.models.onnx.engine import load_onnx
from draftwise.models.onnx.manifest import MANIFEST, Layout, Manifest
from tests.models.onnx.conftest import Conversion


def silent(stage: str, fraction: float) -> None:
    pass


def test_manifest_describes_the_model_and_the_loss_is_small(converted: Path) -> None:
    manifest = Manifest.read(converted)
    assert (manifest.vocab_size, manifest.max_length, manifest.head_size) == (300, 600, 16)
    assert manifest.float_nll > 1
    # A random model turns small changes of its weights into larger ones of its words than a trained one.
    assert abs(manifest.loss) < (1e-4 if manifest.layout is Layout.FLOAT32 else 0.2)


def test_only_what_the_engine_needs_is_left(converted: Path) -> None:
    files = {file.name for file in converted.iterdir()}
    assert {MANIFEST, "model.onnx", "model.onnx.data", "tokenizer.json", "config.json"} <= files
    assert not [name for name in files if name.startswith("float-") or name.endswith(".safetensors")]


def test_progress_rises_within_each_stage(conversion: Conversion) -> None:
    seen: dict[str, list[float]] = {}
    for stage, fraction in conversion.progress:
        seen.setdefault(stage, []).append(fraction)
    assert len(seen) >= 2
    for fractions in seen.values():
        assert fractions == sorted(fractions)
        assert fractions[-1] == 1.0


def test_the_tokenizer_may_be_elsewhere(
    source: Path, exported: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftwise.models.onnx.convert.export", exported)
    bare = shutil.copytree(source, tmp_path / "bare", ignore=shutil.ignore_patterns("tokenizer*"))
    out = tmp_path / "out"
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        convert(bare, out, precision="fp32", progress=silent)
    convert(bare, out, precision="fp32", progress=silent, tokenizer_folder=source)
    load_onnx(out)
    assert (out / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()


def test_an_architecture_that_the_builder_does_not_know_is_refused_by_name(
    source: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "tiny-gpt2"
    GPT2LMHeadModel(
        GPT2Config(vocab_size=300, n_positions=64, n_embd=32, n_layer=1, n_head=2)
    ).save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).write_bytes((source / file).read_bytes())
    with pytest.raises(UnsupportedError, match="tiny-gpt2"):
        convert(folder, tmp_path / "out", precision="int8", progress=silent)


def test_a_head_size_that_the_kernels_do_not_take_is_refused(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "odd-heads"
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=200,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).write_bytes((source / file).read_bytes())
    with pytest.raises(UnsupportedError, match="odd-heads"):
        convert(folder, tmp_path / "out", precision="int8", progress=silent)


@pytest.mark.parametrize("damage", ["no manifest", "old manifest", "short graph", "no weights"])
def test_a_damaged_folder_is_refused_in_one_sentence(converted: Path, tmp_path: Path, damage: str) -> None:
    out = shutil.copytree(converted, tmp_path / "out")
    match damage:
        case "no manifest":
            (out / MANIFEST).unlink()
        case "old manifest":
            fields = json.loads((out / MANIFEST).read_text())
            del fields["head_size"]
            (out / MANIFEST).write_text(json.dumps(fields))
        case "short graph":
            graph = out / "model.onnx"
            graph.write_bytes(graph.read_bytes()[:1000])
        case "no weights":
            (out / "model.onnx.data").unlink()
    with pytest.raises(ModelError, match=r"not a whole converted model.*draftwise convert"):
        load_onnx(out)
