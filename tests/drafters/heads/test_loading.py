"""A checkpoint that does not fit is refused in one sentence that names what is wrong with it."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import draftwise
from draftwise.decoding import generate
from draftwise.drafters.heads import load_heads
from draftwise.errors import ModelError, OptionError, UnsupportedError
from draftwise.models.tabular import TabularModel
from draftwise.models.torch import TorchModel
from tests.drafters.heads import published
from tests.drafters.heads.published import METHODS

Change = Callable[[dict[str, Any], dict[str, Tensor]], None]
every_method = pytest.mark.parametrize("method", METHODS)
A_KEY = {
    "medusa": "2.0.linear.bias",
    "blockwise": "ffn.2.weight",
    "eagle": "layers.0.self_attn.k_proj.weight",
    "eagle3": "midlayer.hidden_norm.weight",
    "dflash": "layers.1.self_attn.q_norm.weight",
}


@pytest.fixture(scope="module")
def target() -> TorchModel:
    return TorchModel(published.target(), name="tiny")


def refusal(folder: Path, method: str, target: TorchModel, change: Change) -> str:
    """The sentence with which a changed checkpoint is refused."""
    config, tensors = METHODS[method]()
    change(config, tensors)
    with pytest.raises(ModelError) as refused:
        load_heads(published.save(folder, method, config, tensors), target)
    sentence = str(refused.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


@every_method
def test_a_missing_tensor_is_named(method: str, target: TorchModel, tmp_path: Path) -> None:
    def change(_: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        del tensors[A_KEY[method]]

    assert f"lacks {A_KEY[method]};" in refusal(tmp_path, method, target, change)


@every_method
def test_a_tensor_too_many_is_named(method: str, target: TorchModel, tmp_path: Path) -> None:
    def change(_: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        tensors["candidate_selector.weight"] = torch.zeros(3)

    assert "has candidate_selector.weight," in refusal(tmp_path, method, target, change)


@every_method
def test_a_tensor_of_another_width_is_named(method: str, target: TorchModel, tmp_path: Path) -> None:
    key = A_KEY[method]

    def change(_: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        tensors[key] = torch.cat([tensors[key], tensors[key]])

    shape = list(METHODS[method]()[1][key].shape)
    sentence = refusal(tmp_path, method, target, change)
    assert f"has {key} of shape {[shape[0] * 2, *shape[1:]]}, where {shape} is expected" in sentence


CONFIGS: list[tuple[str, str, Any]] = [
    ("blockwise", "hidden_size", 64),
    ("blockwise", "blockwise_num_heads", 1),
    ("medusa", "medusa_num_layers", "one"),
    ("eagle", "hidden_size", 64),
    ("eagle", "vocab_size", 100),
    ("eagle", "num_hidden_layers", 2),
    ("eagle3", "vocab_size", 100),
    ("eagle3", "target_hidden_size", 64),
    ("eagle3", "norm_output", True),
    ("eagle3", "speculators_model_type", "eagle3"),
    ("dflash", "num_target_layers", 36),
    ("dflash", "block_size", 1),
    ("dflash", "vocab_size", 100),
]


@pytest.mark.parametrize(("method", "key", "value"), CONFIGS)
def test_a_config_for_another_target_is_refused(
    method: str, key: str, value: Any, target: TorchModel, tmp_path: Path
) -> None:
    sentence = refusal(tmp_path, method, target, lambda config, _: config.update({key: value}))
    assert (key if key != "speculators_model_type" else "format (eagle3)") in sentence


def test_layers_that_the_target_lacks_are_refused(target: TorchModel, tmp_path: Path) -> None:
    def change(config: dict[str, Any], _: dict[str, Tensor]) -> None:
        config["dflash_config"]["target_layer_ids"] = [1, 33]

    assert "target_layer_ids = [1, 33]" in refusal(tmp_path / "dflash", "dflash", target, change)
    named = {"eagle_aux_hidden_state_layer_ids": [1, 17, 32]}
    sentence = refusal(
        tmp_path / "eagle3", "eagle3", target, lambda config, _: config.update(eagle_config=named)
    )
    assert "eagle_aux_hidden_state_layer_ids = [1, 17, 32]" in sentence
    shallow = TorchModel(published.target(num_hidden_layers=5), name="shallow")
    assert "the target has 5 layers" in refusal(tmp_path / "shallow", "eagle3", shallow, lambda *_: None)


def test_maps_of_the_vocabulary_that_disagree_are_refused(target: TorchModel, tmp_path: Path) -> None:
    def change(_: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        tensors["d2t"][4] += 1

    assert "d2t and t2d" in refusal(tmp_path, "eagle3", target, change)


def test_a_whole_draft_vocabulary_needs_no_maps(target: TorchModel, tmp_path: Path) -> None:
    config, tensors = published.eagle3()
    config["draft_vocab_size"] = published.VOCAB_SIZE
    del tensors["d2t"], tensors["t2d"]
    tensors["lm_head.weight"] = torch.randn(published.VOCAB_SIZE, published.WIDTH)
    drafter = load_heads(published.save(tmp_path, "eagle3", config, tensors), target)
    assert (
        generate(target, [1, 2], drafter=drafter, num_draft_tokens=None, max_new_tokens=6).target_passes <= 6
    )


def test_medusa_heads_come_out_of_a_whole_model(target: TorchModel, tmp_path: Path) -> None:
    """As in the checkpoints of Medusa-2, of which only the heads are read."""
    config, tensors = published.medusa()
    model = {f"medusa_head.{key}": tensor for key, tensor in tensors.items()}
    model["model.norm.weight"] = torch.ones(1)
    whole = load_heads(published.save(tmp_path / "whole", "eagle", config, model), target)
    alone = load_heads(published.save(tmp_path / "alone", "medusa", config, tensors), target)
    assert whole.default_num_draft_tokens == 4  # the file counts, not the config
    texts = [
        generate(target, [3, 1], drafter=drafter, num_draft_tokens=None, max_new_tokens=9)
        for drafter in (whole, alone)
    ]
    assert [step.drafted for step in texts[0].steps] == [step.drafted for step in texts[1].steps]


class Malice:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.mkdir, ("should-not-exist",)


def test_pickles_run_no_code(target: TorchModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(published.eagle()[0]))
    torch.save({"fc.weight": Malice()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin cannot be read as tensors alone"):
        load_heads(tmp_path, target)
    assert not (tmp_path / "should-not-exist").exists()
    torch.save({"fc.weight": 3}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="other things than tensors"):
        load_heads(tmp_path, target)


def test_folders_that_hold_no_heads(target: TorchModel, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no folder"):
        load_heads(tmp_path / "nowhere", target)
    with pytest.raises(ModelError, match=r"holds no config\.json"):
        load_heads(tmp_path, target)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="is no JSON"):
        load_heads(tmp_path, target)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="none of the keys that tell the kind of heads"):
        load_heads(tmp_path, target)
    (tmp_path / "config.json").write_text('{"medusa_num_heads": 2}')
    with pytest.raises(ModelError, match="holds no weights"):
        load_heads(tmp_path, target)
    (tmp_path / "model.safetensors").write_bytes(b"\x08")
    with pytest.raises(ModelError, match=r"model\.safetensors cannot be read"):
        load_heads(tmp_path, target)


def test_targets_that_heads_cannot_read(target: TorchModel, tmp_path: Path) -> None:
    folder = published.save(tmp_path, "medusa", *published.medusa())
    with pytest.raises(UnsupportedError, match="table hands out no hidden states"):
        draftwise.load_heads(folder, TabularModel.random(published.VOCAB_SIZE, name="table"))
    another = TorchModel(published.target(), name="another")
    with pytest.raises(OptionError, match="loaded for tiny and cannot draft for another"):
        generate(
            another,
            [1],
            drafter=draftwise.load_heads(folder, target),
            num_draft_tokens=None,
            max_new_tokens=5,
        )
