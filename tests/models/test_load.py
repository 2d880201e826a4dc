"""Loading: where a model is looked for, which engine runs it, what is refused and in what words."""

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer, WhisperFeatureExtractor

from draftwise.decoding import generate
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.input_copy import InputCopy
from draftwise.errors import ModelError, OptionError, PromptError, TokenizerMismatchError, UnsupportedError
from draftwise.models import load as loading
from draftwise.models import sources
from draftwise.models.base import LanguageModel
from draftwise.models.gguf import to_transformers
from draftwise.models.load import load, load_tokenizer
from draftwise.models.sources import Kind, find
from draftwise.progress import shown
from tests.models.tiny_seq2seq import MEL_BINS
from tests.tiny_folders import (
    MAX_LENGTH,
    SPECIAL,
    byte_level,
    save_encoder_decoder,
    save_gguf,
    save_llama,
    save_tokenizer,
    tiny_llama,
)

PROMPT = "The quick brown fox"


def silent(stage: str, fraction: float) -> None:
    pass


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAFTWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("tiny") / "tiny-llama")


def last_logits(model: LanguageModel, text: str = PROMPT) -> np.ndarray:
    assert model.tokenizer is not None
    token_ids = model.tokenizer.encode(text)
    return np.asarray(model.open(1, len(token_ids)).forward([token_ids], [1])[0][0])


def expected_logits(folder: Path, text: str = PROMPT) -> np.ndarray:
    """Those of transformers."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    token_ids = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        return np.asarray(model(token_ids).logits[0, -1])


def test_a_folder_on_torch(folder: Path) -> None:
    model = load(folder, engine="torch")
    np.testing.assert_allclose(last_logits(model), expected_logits(folder), atol=1e-5)
    assert model.name == str(folder)
    assert model.eos_token_ids == {SPECIAL.index("<|im_end|>")}
    assert model.max_length == MAX_LENGTH


def test_a_folder_on_onnx_is_converted_once(folder: Path, own_cache: Path) -> None:
    stages = []
    model = load(
        folder, engine="onnx", dtype="float32", progress=lambda stage, fraction: stages.append(stage)
    )
    np.testing.assert_allclose(last_logits(model), expected_logits(folder), atol=1e-4)
    assert model.eos_token_ids == {SPECIAL.index("<|im_end|>")}
    assert len(set(stages)) > 1
    (converted,) = [path for path in own_cache.iterdir() if path.is_dir()]
    assert not list(converted.glob("*/")), "nothing of the float model is left behind"

    stages.clear()
    again = load(
        str(folder), engine="onnx", dtype="float32", progress=lambda stage, fraction: stages.append(stage)
    )
    assert set(stages) == {f"loading {folder}"}
    np.testing.assert_array_equal(last_logits(again), last_logits(model))

    # The folder that was made is a source of its own, and settles the engine.
    direct = load(converted)
    np.testing.assert_array_equal(last_logits(direct), last_logits(model))
    with pytest.raises(OptionError, match=r"was converted to float32, not int8"):
        load(converted, dtype="int8")
    with pytest.raises(OptionError, match=r"was converted for the onnx engine"):
        load(converted, engine="torch")


def test_other_content_is_another_conversion(tmp_path: Path) -> None:
    folder = save_llama(tmp_path / "model")
    identity = find(folder, trust_remote_code=False, progress=silent).identity
    assert find(folder, trust_remote_code=False, progress=silent).identity == identity
    tiny_llama(seed=2).save_pretrained(folder)
    assert find(folder, trust_remote_code=False, progress=silent).identity != identity


@pytest.fixture(scope="module")
def gguf_file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_gguf(folder, tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def test_a_gguf_file_on_torch(gguf_file: Path, folder: Path) -> None:
    model = load(gguf_file, engine="torch")
    np.testing.assert_allclose(last_logits(model), expected_logits(folder), atol=1e-5)
    assert model.eos_token_ids == {SPECIAL.index("<|im_end|>")}
    assert model.tokenizer is not None
    assert model.tokenizer.difference(load_tokenizer(folder)) is None
    assert model.tokenizer.has_chat_template


def test_a_gguf_file_becomes_a_transformers_folder(gguf_file: Path, folder: Path, tmp_path: Path) -> None:
    to_transformers(str(gguf_file), str(tmp_path), progress=silent)
    np.testing.assert_allclose(expected_logits(tmp_path), expected_logits(folder), atol=1e-5)


def test_a_truncated_gguf_file_is_named(gguf_file: Path, tmp_path: Path) -> None:
    content = gguf_file.read_bytes()
    short = tmp_path / "short.gguf"
    short.write_bytes(content[: len(content) // 2])
    for engine in ("torch", "onnx"):
        with pytest.raises(ModelError, match=rf"{short} cannot be read as GGUF .* lists .* fetch it again"):
            load(short, engine=engine)
    for cut in (5, 100, len(content) - 1):
        short.write_bytes(content[:cut])
        with pytest.raises(ModelError, match=rf"{short} cannot be read as GGUF"):
            to_transformers(str(short), str(tmp_path / "out"), progress=silent)


def test_a_truncated_gguf_file_is_refused_before_the_slow_imports(gguf_file: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.gguf"
    short.write_bytes(gguf_file.read_bytes()[:-1])
    code = f"""
import sys
from draftwise.errors import ModelError
from draftwise.models.gguf import to_transformers
try:
    to_transformers({str(short)!r}, {str(tmp_path)!r}, progress=print)
except ModelError:
    sys.exit(1 + bool({{"torch", "transformers"}} & sys.modules.keys()))
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 1


def test_a_gguf_file_that_lacks_a_weight_is_named(gguf_file: Path, tmp_path: Path) -> None:
    renamed = tmp_path / "renamed.gguf"
    renamed.write_bytes(gguf_file.read_bytes().replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_no.weight"))
    with pytest.raises(ModelError, match=r"it lacks model\.layers\.1\.mlp\.up_proj\.weight"):
        to_transformers(str(renamed), str(tmp_path / "out"), progress=silent)


def test_a_bundled_name_is_found_in_its_package(gguf_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = gguf_file.parent / "poisoned_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('it needs what is not there')")
    (package / "model.gguf").write_bytes(gguf_file.read_bytes())
    monkeypatch.syspath_prepend(gguf_file.parent)
    bundled = sources.Bundled("poisoned_package", "model.gguf", "nobody/nothing")
    monkeypatch.setitem(sources.BUNDLED, "tiny-bundled", bundled)
    found = find("tiny-bundled", trust_remote_code=False, progress=silent)
    assert (found.kind, found.path, found.name) == (Kind.GGUF, package / "model.gguf", "tiny-bundled")


def _folder_with(tmp_path: Path, *names: str) -> Path:
    for name in names:
        (tmp_path / name).write_text("{}")
    return tmp_path


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((), r"holds no config\.json"),
        (("model.gguf",), r"give the file itself, such as .*model\.gguf"),
        (("config.json",), r"holds no safetensors"),
        (("config.json", "pytorch_model.bin"), r"weights in a pickle only, .* safetensors"),
        (("config.json", "model.safetensors"), r"has no tokenizer\.json"),
    ],
)
@pytest.mark.parametrize("engine", ["onnx", "torch"])
def test_a_folder_that_is_no_model_says_what_it_lacks(
    engine: str, files: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=message):
        load(_folder_with(tmp_path, *files), engine=engine)


@pytest.mark.parametrize("source", ["./nowhere", "nowhere.gguf", "a/b/c", Path("nowhere")])
def test_a_path_that_is_not_there_never_reaches_the_hub(
    source: str | Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_download", None)
    with pytest.raises(ModelError, match=r"there is no file or folder .*; a model is a hub id"):
        load(source)


def test_a_file_that_is_no_gguf_is_named(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("words")
    with pytest.raises(ModelError, match=r"notes\.txt is not a GGUF file"):
        load(file)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "tpu"}, r'engine "tpu" is not one of'),
        ({"engine": "onnx", "dtype": "bfloat16"}, r'dtype "bfloat16"'),
        ({"engine": "onnx", "device": "cuda"}, r"onnx engine runs on the CPU"),
        ({"engine": "torch", "dtype": "int8"}, r'dtype "int8"'),
        ({"engine": "torch", "device": "abacus"}, r"abacus"),
        ({"engine": "torch", "threads": 0}, r"threads is 0"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    folder: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        load(folder, **options)


@pytest.mark.parametrize(
    ("dtype", "device", "has_gpu", "engine"),
    [
        (None, None, False, "onnx"),
        (None, None, True, "torch"),
        (None, "cpu", True, "onnx"),
        (None, "cuda", False, "torch"),
        ("int8", None, True, "onnx"),
        ("int4", None, True, "onnx"),
        ("float32", None, False, "onnx"),
        ("bfloat16", None, False, "torch"),
    ],
)
def test_the_engine_suits_the_machine(
    dtype: str | None,
    device: str | None,
    has_gpu: bool,
    engine: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loading, "_has_gpu", lambda: has_gpu)
    monkeypatch.setattr(loading, "_load_onnx", lambda *args: "onnx")
    monkeypatch.setattr(loading, "_load_torch", lambda *args: "torch")
    monkeypatch.setattr(loading, "_refuse_contradictions", lambda *args: None)
    assert load(folder, dtype=dtype, device=device) == engine


def test_what_cannot_be_converted_runs_on_torch_and_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise UnsupportedError("this architecture cannot be exported.")

    monkeypatch.setattr("draftwise.models.onnx.convert.convert", refuse)
    monkeypatch.setattr(loading, "_has_gpu", lambda: False)
    with caplog.at_level(logging.WARNING, "draftwise"):
        model = load(folder)
    assert type(model).__name__ == "TorchModel"
    assert caplog.messages == ["this architecture cannot be exported. It runs on the torch engine instead."]
    with pytest.raises(UnsupportedError, match=r"cannot be exported"):
        load(folder, engine="onnx")


@pytest.mark.parametrize("architecture", ["t5-gated", "bart"])
def test_an_encoder_decoder_runs_on_torch(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = save_encoder_decoder(tmp_path / "tiny-seq2seq", architecture)
    monkeypatch.setattr(loading, "_has_gpu", lambda: False)
    with pytest.raises(UnsupportedError, match=r"tiny-seq2seq is an encoder-decoder.*engine='torch'"):
        load(folder, engine="onnx")
    with caplog.at_level(logging.WARNING, "draftwise"):
        target = load(folder)
    assert "tiny-seq2seq is an encoder-decoder" in caplog.text
    by_transformers = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32)
    encoded = AutoTokenizer.from_pretrained(folder)(PROMPT, return_tensors="pt")
    output = by_transformers.generate(
        encoded["input_ids"], do_sample=False, use_cache=False, max_new_tokens=20
    )
    for drafter in (DraftModel(load(folder, engine="torch")), InputCopy()):
        generation = generate(target, PROMPT, drafter=drafter, max_new_tokens=20, num_draft_tokens=3)
        assert list(generation.token_ids) == output[0, 1:].tolist()
        assert generation.text == target.tokenizer.decode(generation.token_ids)  # type: ignore[union-attr]


def test_a_whisper_comes_with_its_feature_extractor(tmp_path: Path) -> None:
    folder = save_encoder_decoder(tmp_path / "tiny-whisper", "whisper")
    waveform = np.sin(np.arange(9600) / 9).astype(np.float32)
    with pytest.raises(PromptError, match="feature extractor"):
        generate(load(folder, engine="torch"), waveform, max_new_tokens=5)
    extractor = WhisperFeatureExtractor(feature_size=MEL_BINS, chunk_length=1)
    extractor.save_pretrained(folder)
    target = load(folder, engine="torch")
    features = extractor(waveform, sampling_rate=16000, return_tensors="np").input_features[0]
    heard, expected = (generate(target, sound, max_new_tokens=20) for sound in (waveform, features))
    assert heard.token_ids == expected.token_ids


def test_an_encoder_decoder_with_another_tokenizer_cannot_draft(tmp_path: Path) -> None:
    target = load(save_encoder_decoder(tmp_path / "target"), engine="torch")
    save_tokenizer(byte_level(["other words"] * 9), save_encoder_decoder(tmp_path / "draft"))
    draft = load(tmp_path / "draft", engine="torch")
    with pytest.raises(TokenizerMismatchError, match=r"draft.*cannot draft for.*target"):
        generate(target, PROMPT, drafter=DraftModel(draft), max_new_tokens=5, num_draft_tokens=3)


def test_bars_are_drawn_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with shown(None) as progress:
        progress("converting", 0.5)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with shown(None) as progress:
        progress("converting", 0.5)
        progress("loading", 1.0)
    drawn = capsys.readouterr()
    assert drawn.out == ""
    assert "converting" in drawn.err
    assert "50%" in drawn.err
