"""Loading onto PyTorch: from folders and GGUF files, with the device and dtype asked for."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM, dynamic_module_utils

from draftwise.errors import ModelError, OptionError
from draftwise.models.torch import RecurrentModel, load_torch
from draftwise.models.torch.loading import choose_device, choose_dtype
from tests.models.tiny import one_thread  # noqa: F401
from tests.models.tiny_recurrent import RECURRENT
from tests.tiny_folders import save_gguf, save_llama, tiny_llama

TEXT = list(range(20, 50))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("torch") / "tiny-llama")


@pytest.fixture(scope="module")
def gguf_file(folder: Path) -> Path:
    return save_gguf(folder, folder.parent / "tiny-llama.GGUF")


def test_a_folder_in_each_dtype(folder: Path) -> None:
    expected = tiny_llama()(torch.tensor([TEXT])).logits[0].detach().numpy()
    for dtype, tolerance in [(None, 1e-5), ("float32", 1e-5), ("float64", 1e-5), ("bfloat16", 0.5)]:
        model = load_torch(folder, device="cpu", dtype=dtype)
        assert model.name == str(folder)
        assert model.model.dtype == getattr(torch, dtype or "float32")
        (logits,) = model.open(1, len(TEXT)).forward([TEXT], [len(TEXT)])
        np.testing.assert_allclose(logits, expected, atol=tolerance)


def test_a_gguf_file_gives_the_same_model(folder: Path, gguf_file: Path) -> None:
    logits = [
        load_torch(source, device="cpu").open(1, len(TEXT)).forward([TEXT], [5])[0]
        for source in (folder, gguf_file)
    ]
    np.testing.assert_allclose(logits[0], logits[1], atol=1e-5)


def test_a_recurrent_model(tmp_path: Path) -> None:
    made = RECURRENT["lfm2"]()
    made.save_pretrained(tmp_path)
    model = load_torch(tmp_path, device="cpu")
    assert isinstance(model, RecurrentModel)
    with torch.inference_mode():
        expected = made(torch.tensor([TEXT])).logits[0].numpy()
    np.testing.assert_allclose(model.open(1, 50).forward([TEXT], [30])[0], expected, atol=1e-5)


def test_the_usual_dtype_of_a_device() -> None:
    dtypes = {name: choose_dtype(None, torch.device(name)) for name in ("cpu", "cuda", "mps")}
    assert dtypes == {"cpu": torch.float32, "cuda": torch.bfloat16, "mps": torch.bfloat16}


@pytest.mark.parametrize(
    ("cuda", "mps", "best"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_the_best_device(cuda: bool, mps: bool, best: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    monkeypatch.setattr(torch, "empty", lambda *size, device: torch.zeros(*size))
    assert choose_device(None).type == best


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "abacus"}, 'device "abacus"'),
        ({"device": "cuda:77"}, 'device "cuda:77"'),
        ({"dtype": "float8"}, 'dtype "float8".*float32'),
        ({"threads": 0}, "threads is 0"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, object], said: str, folder: Path) -> None:
    with pytest.raises(OptionError, match=said):
        load_torch(folder, **options)  # type: ignore[arg-type]


def test_threads(folder: Path) -> None:
    load_torch(folder, device="cpu", threads=2)
    assert torch.get_num_threads() == 2
    load_torch(folder, device="cpu", threads=1)
    assert torch.get_num_threads() == 1


def no_config(folder: Path) -> Path:
    folder.mkdir()
    return folder


def no_weights(folder: Path) -> Path:
    tiny_llama().config.save_pretrained(folder)
    return folder


def pickled_weights(folder: Path) -> Path:
    no_weights(folder)
    torch.save(tiny_llama().state_dict(), folder / "pytorch_model.bin")
    return folder


def torn_weights(folder: Path) -> Path:
    tiny_llama().save_pretrained(folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    return folder


def torn_gguf(folder: Path) -> Path:
    save_llama(folder)
    file = save_gguf(folder, folder / "torn.gguf")
    file.write_bytes(file.read_bytes()[:20_000])
    return file


@pytest.mark.parametrize("make", [no_config, no_weights, pickled_weights, torn_weights, torn_gguf])
def test_what_cannot_be_read_is_said_in_one_sentence(make: Callable[[Path], Path], tmp_path: Path) -> None:
    source = make(tmp_path / "it")
    with pytest.raises(ModelError) as caught:
        load_torch(source, device="cpu")
    message = str(caught.value)
    assert str(source) in message
    assert "\n" not in message
    assert message.endswith(".")


def test_code_that_comes_with_a_model_runs_only_if_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])  # the modules are put on it
    folder = tmp_path / "with-code"
    LlamaForCausalLM(tiny_llama().config).save_pretrained(folder)
    trace = tmp_path / "it-ran"
    (folder / "modeling_own.py").write_text(
        "from pathlib import Path\n"
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        f"Path({str(trace)!r}).touch()\n"
        "class OwnConfig(LlamaConfig):\n    model_type = 'own'\n"
        "class OwnForCausalLM(LlamaForCausalLM):\n    config_class = OwnConfig\n"
    )
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = "own"
    config["auto_map"] = {
        "AutoConfig": "modeling_own.OwnConfig",
        "AutoModelForCausalLM": "modeling_own.OwnForCausalLM",
    }
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError):
        load_torch(folder, device="cpu")
    assert not trace.exists()
    model = load_torch(folder, device="cpu", trust_remote_code=True)
    assert trace.exists()
    assert type(model.model).__name__ == "OwnForCausalLM"
