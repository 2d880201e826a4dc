"""An output layer of few tokens: those keep their logits, and no other can be guessed."""

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from draftwise import Batch, DraftModel, LanguageModel, generate, score
from draftwise.errors import OptionError, UnsupportedError
from draftwise.models.onnx.convert import convert
from draftwise.models.onnx.engine import OnnxModel, load_onnx
from draftwise.models.onnx.manifest import Manifest
from draftwise.models.onnx.vocabulary import restrict
from draftwise.types import Logits
from tests.models.onnx.test_convert import silent

VOCABULARY = [3, *range(40, 121, 2), 299]
PROMPT = [7, 250, 3, 99, 100, 42]


def last_logits(folder: Path) -> Logits:
    with closing(load_onnx(folder).open(1, 16)) as state:
        return state.forward([PROMPT], [4])[0].copy()


def expect_restricted(restricted: Logits, whole: Logits) -> None:
    # Not to the bit: how products in blocks add up depends on how many columns there are.
    np.testing.assert_allclose(restricted[:, VOCABULARY], whole[:, VOCABULARY], atol=1e-5)
    others = np.setdiff1d(np.arange(whole.shape[1]), VOCABULARY)
    assert len(others) > len(VOCABULARY)
    assert (restricted[:, others] == -np.inf).all()


@pytest.fixture
def restricted(
    converted: Path,
    source: Path,
    exported: Callable[..., dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    monkeypatch.setattr("draftwise.models.onnx.convert.export", exported)
    layout = Manifest.read(converted).layout
    precision = "fp32" if layout == "float32" else str(layout)
    convert(source, tmp_path / "few", precision=precision, progress=silent, vocabulary=[*VOCABULARY, 300])
    return tmp_path / "few"


def test_known_tokens_keep_their_logits(restricted: Path, converted: Path) -> None:
    expect_restricted(last_logits(restricted), last_logits(converted))


def test_what_is_lost_is_counted_where_known_tokens_follow(restricted: Path, converted: Path) -> None:
    few, whole = Manifest.read(restricted), Manifest.read(converted)
    assert np.isfinite(few.nll)
    assert few.float_nll != whole.float_nll
    assert few.vocab_size == whole.vocab_size


def test_it_drafts_without_changing_what_is_written(restricted: Path, model: OnnxModel) -> None:
    drafter = DraftModel(load_onnx(restricted))
    plain = generate(model, PROMPT, max_new_tokens=40, ignore_eos=True)
    assisted = generate(
        model, PROMPT, drafter=drafter, num_draft_tokens=3, max_new_tokens=40, ignore_eos=True
    )
    assert assisted.token_ids == plain.token_ids
    guessed = {token_id for step in assisted.steps for token_id in step.drafted}
    assert guessed
    assert guessed <= set(VOCABULARY)


@pytest.mark.parametrize(
    "use",
    [
        lambda model: generate(model, PROMPT, max_new_tokens=4),
        lambda model: score(model, PROMPT, [3]),
        lambda model: Batch(model, 1, 16),
    ],
    ids=["generate", "score", "batch"],
)
def test_a_target_has_to_know_all_tokens(restricted: Path, use: Callable[[LanguageModel], object]) -> None:
    with pytest.raises(UnsupportedError, match=r"never write the others; as a target give a model"):
        use(load_onnx(restricted))


def test_a_model_converted_before_that_was_told_is_whole(restricted: Path) -> None:
    file = restricted / "draftwise.json"
    fields = json.loads(file.read_text())
    assert fields.pop("only_drafts")
    file.write_text(json.dumps(fields))
    assert not load_onnx(restricted).only_drafts


@pytest.mark.parametrize("precision", ["fp32", "int8-rowwise"])
def test_an_output_layer_that_is_the_embedding_too(source: Path, tmp_path: Path, precision: str) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        initializer_range=0.2,
        tie_word_embeddings=True,
    )
    tied = shutil.copytree(source, tmp_path / "tied", ignore=shutil.ignore_patterns("*config.json", "model*"))
    LlamaForCausalLM(config).save_pretrained(tied)
    for name, vocabulary in (("whole", []), ("few", VOCABULARY)):
        convert(tied, tmp_path / name, precision=precision, progress=silent, vocabulary=vocabulary)
    expect_restricted(last_logits(tmp_path / "few"), last_logits(tmp_path / "whole"))


def test_a_bias_is_cut_and_what_bounds_the_logits_does_not_bound_the_unknown() -> None:
    rng = np.random.default_rng(0)
    arrays = {"w": rng.standard_normal((8, 300), np.float32), "b": rng.standard_normal(300, np.float32)}
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1, "n", 8]))
    weights, bias = (
        ir.Value(name=name, const_value=ir.tensor(array, name=name), shape=ir.Shape(array.shape))
        for name, array in arrays.items()
    )
    product = ir.node("MatMul", [x, weights])
    shifted = ir.node("Add", [product.outputs[0], bias])
    bounded = ir.node("Tanh", [shifted.outputs[0]])
    for node in (product, shifted, bounded):
        node.outputs[0].type, node.outputs[0].shape = x.type, ir.Shape([1, "n", 300])
    logits = bounded.outputs[0]
    logits.name = "logits"
    graph = ir.Graph(
        [x],
        [logits],
        nodes=[product, shifted, bounded],
        initializers=[weights, bias],
        opset_imports={"": 21},
        name="head",
    )
    restrict(graph, product, VOCABULARY)
    session = ort.InferenceSession(ir.to_proto(ir.Model(graph, ir_version=10)).SerializeToString())
    states = rng.standard_normal((1, 3, 8), np.float32)
    (few,) = session.run(["logits"], {"x": states})
    exact = np.tanh(states[0] @ arrays["w"] + arrays["b"])
    np.testing.assert_allclose(few[0][:, VOCABULARY], exact[:, VOCABULARY], atol=1e-5)
    assert (np.delete(few[0], VOCABULARY, axis=1) == -np.inf).all()


def test_a_vocabulary_that_no_text_has_is_refused(
    source: Path, exported: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftwise.models.onnx.convert.export", exported)
    with pytest.raises(OptionError, match="none of the 1 tokens of the vocabulary is common; give more"):
        convert(source, tmp_path / "out", precision="fp32", progress=silent, vocabulary=[299])
