"""Folders without a tokenizer.json: Marian's two SentencePiece models, and files of other kinds."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    LlamaConfig,
    M2M100Config,
    OPTConfig,
    PreTrainedConfig,
    T5Config,
)

from draftwise.cli import main
from draftwise.decoding import generate
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.input_copy import InputCopy
from draftwise.drafters.none import NoDrafter
from draftwise.errors import ModelError, OptionError, UnsupportedError
from draftwise.models import conversion
from draftwise.models.load import load
from draftwise.models.sources import find
from draftwise.models.tokenizer_files import save_tokenizer
from draftwise.models.torch import EncoderDecoderModel
from draftwise.sampling import SamplingParams
from draftwise.sampling.grammar import Grammar
from draftwise.scoring import score
from draftwise.tokenizer import Tokenizer
from draftwise.types import FinishReason
from tests.tiny_folders import CORPUS, GERMAN, byte_level, save_marian, sentencepiece_model

MAX_NEW_TOKENS = 30
TEXTS = [
    *CORPUS,
    *GERMAN,
    "the quick qq",  # pieces that the vocabulary lacks
    ">>de<< the dog",
    ">>de<<the dog",
    "Straße ß, 日本 Σ",  # of the other language, and of none
    "a <s> b </s> c <pad> <unk>d",
    "  two  spaces, a\ttab\n\nand lines ",
    "▁x",
    "",
]


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTWISE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def marian_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_marian(tmp_path_factory.mktemp("hub") / "opus-mt-tiny")


@pytest.fixture(scope="module")
def marian(marian_folder: Path) -> EncoderDecoderModel:
    model = load(marian_folder, engine="torch")
    assert isinstance(model, EncoderDecoderModel)
    return model


def tokenizer_of(model: EncoderDecoderModel) -> Tokenizer:
    assert model.tokenizer is not None
    return model.tokenizer


def test_each_language_is_cut_by_its_own_pieces_as_in_transformers(
    marian: EncoderDecoderModel, marian_folder: Path
) -> None:
    ours, theirs = tokenizer_of(marian), AutoTokenizer.from_pretrained(marian_folder)
    for text in TEXTS:
        read, written = ours.source.encode(text), ours.encode(text)
        assert read == theirs(text)["input_ids"]
        assert written == theirs(text_target=text)["input_ids"]
        for token_ids in (read, written):
            # Theirs takes spaces away at the end too, which a stream cannot.
            assert ours.decode(token_ids).strip() == theirs.decode(token_ids, skip_special_tokens=True)
            stream = ours.stream()
            assert "".join(map(stream.step, token_ids)) + stream.flush() == ours.decode(token_ids)
    assert ours.source.encode(CORPUS[0]) != ours.encode(CORPUS[0])
    assert ours.source.encode("the")[0] == ours.source.encode("日")[1] == 1
    assert ours.eos_token_ids == marian.eos_token_ids == {theirs.eos_token_id}
    assert ours.vocab_size == marian.vocab_size == len(theirs)


def test_tokens_of_either_language_spell_their_text(marian: EncoderDecoderModel) -> None:
    ours = tokenizer_of(marian)
    for text in (CORPUS[0], GERMAN[0]):
        spelled = b"".join(ours.spellings[token_id] for token_id in ours.encode(text)[:-1])
        assert spelled.decode() == f" {text}" or 1 in ours.encode(text)


DRAFTERS: dict[str, Callable[[EncoderDecoderModel], Drafter]] = {
    "none": lambda target: NoDrafter(),
    "draft model": DraftModel,
    "copy": lambda target: InputCopy(),
}


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize(
    ("prompt", "finish_reason"), [(CORPUS[0], FinishReason.LENGTH), (CORPUS[1], FinishReason.EOS)]
)
def test_text_in_gives_the_text_of_transformers(
    prompt: str, finish_reason: FinishReason, drafter: str, marian: EncoderDecoderModel, marian_folder: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(marian_folder)
    theirs = AutoModelForSeq2SeqLM.from_pretrained(marian_folder, dtype=torch.float32)
    assert theirs.final_logits_bias.abs().max() > 0.1
    output = theirs.generate(
        **tokenizer(prompt, return_tensors="pt"),
        num_beams=1,
        do_sample=False,
        use_cache=False,
        max_new_tokens=MAX_NEW_TOKENS,
    )[0]
    expected = output[1:].tolist()  # without the padding that it begins with
    generation = generate(
        marian, prompt, drafter=DRAFTERS[drafter](marian), max_new_tokens=MAX_NEW_TOKENS, num_draft_tokens=3
    )
    assert len(set(expected)) > 10
    assert generation.finish_reason is finish_reason
    # Where the text is cut, theirs has eos in place of the last token: its config forces that.
    whole = finish_reason is FinishReason.EOS
    assert list(generation.token_ids[: None if whole else -1]) == expected[: None if whole else -1]
    assert generation.text.startswith(tokenizer.decode(output, skip_special_tokens=True))


def test_what_never_comes_has_no_probability(marian: EncoderDecoderModel) -> None:
    """The padding, which its generation config bans and which every text begins with."""
    padding = tokenizer_of(marian).vocab_size - 1
    assert marian.encoder.start_ids == (padding,)
    assert score(marian, CORPUS[0], [5, padding, 5]).tokens[1].logprob == float("-inf")


def test_what_is_written_is_read_by_the_pieces_of_its_language(
    marian: EncoderDecoderModel, marian_folder: Path
) -> None:
    theirs = AutoTokenizer.from_pretrained(marian_folder)
    assert list(score(marian, CORPUS[0], GERMAN[0]).token_ids) == theirs(text_target=GERMAN[0])["input_ids"]
    whole = generate(marian, CORPUS[0], max_new_tokens=MAX_NEW_TOKENS).text
    stop = whole[10:13]
    stopped = generate(
        marian,
        CORPUS[0],
        max_new_tokens=MAX_NEW_TOKENS,
        stop=stop,
        drafter=DraftModel(marian),
        num_draft_tokens=3,
    )
    assert stopped.text == whole[: whole.index(stop)]
    assert stopped.finish_reason is FinishReason.STOP_STRING


def test_grammars_are_refused(marian: EncoderDecoderModel) -> None:
    sampling = SamplingParams(grammar=Grammar.regex("[a-z]+"))
    with pytest.raises(OptionError, match="opus-mt-tiny has a tokenizer that grammars cannot"):
        generate(marian, CORPUS[0], sampling=sampling, max_new_tokens=MAX_NEW_TOKENS)


def test_the_command_line_translates(
    marian: EncoderDecoderModel, marian_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--engine", "torch", "--max-new-tokens", str(MAX_NEW_TOKENS), "--drafter", "copy"]
    assert main(["generate", CORPUS[1], "--target", str(marian_folder), *options]) == 0
    assert capsys.readouterr().out == generate(marian, CORPUS[1], max_new_tokens=MAX_NEW_TOKENS).text + "\n"


T5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "hard_vocab_limit": False}
LLAMA_2 = sentencepiece_model(CORPUS, 320, model_type="bpe", byte_fallback=True)


def bare(folder: Path, config: PreTrainedConfig, files: Mapping[str, bytes]) -> Path:
    """A model folder of no weights, with these files."""
    config.save_pretrained(folder)
    save_file({}, folder / "model.safetensors")
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def t5(folder: Path, size: int = 80) -> Path:
    return bare(folder, T5Config(), {"spiece.model": sentencepiece_model(CORPUS, size, **T5)})


def llama_2(folder: Path) -> Path:
    return bare(folder, LlamaConfig(), {"tokenizer.model": LLAMA_2})


def opt(folder: Path) -> Path:
    byte_level().model.save(str(folder))
    return bare(folder, OPTConfig(), {})


@pytest.mark.parametrize("kind", [t5, llama_2, opt])
def test_files_of_other_kinds_are_read_as_transformers_reads_them(
    kind: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder, out = kind(tmp_path), tmp_path / "out"
    save_tokenizer(str(folder), str(out), progress=lambda stage, fraction: None)
    ours, theirs = Tokenizer.from_folder(out), AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        assert ours.encode(text) == theirs(text)["input_ids"]
        assert ours.decode(ours.encode(text)) == theirs.decode(
            theirs(text)["input_ids"], skip_special_tokens=True
        )
    assert ours.source is ours


def test_other_files_are_another_tokenizer(tmp_path: Path) -> None:
    def identity(size: int) -> str:
        folder = t5(tmp_path, size)
        return find(folder, trust_remote_code=False, progress=lambda stage, fraction: None).identity

    assert identity(80) != identity(60)


def test_a_decoder_is_converted_with_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find(llama_2(tmp_path), trust_remote_code=False, progress=lambda stage, fraction: None)
    given: dict[str, Any] = {}
    monkeypatch.setattr(
        "draftwise.models.onnx.convert.convert", lambda folder, **options: given.update(options)
    )
    conversion.convert_source(
        found, tmp_path / "out", precision="fp32", progress=lambda stage, fraction: None
    )
    ours, theirs = Tokenizer.from_folder(given["tokenizer_folder"]), AutoTokenizer.from_pretrained(tmp_path)
    assert ours.encode(CORPUS[0]) == theirs(CORPUS[0])["input_ids"]


def test_what_cannot_be_a_tokenizer_json_is_refused_by_name(tmp_path: Path) -> None:
    def refused(folder: Path, message: str, error: type[Exception] = UnsupportedError) -> None:
        with pytest.raises(error, match=message):
            save_tokenizer(str(folder), str(tmp_path / "out"), progress=lambda stage, fraction: None)

    pieces = sentencepiece_model(CORPUS, 80, hard_vocab_limit=False)
    slow = bare(tmp_path / "slow", M2M100Config(), {"sentencepiece.bpe.model": pieces, "vocab.json": b"{}"})
    refused(slow, r"slow has a M2M100Tokenizer.*token ids")
    two = save_marian(tmp_path / "two")
    (two / "target_vocab.json").write_bytes((two / "vocab.json").read_bytes())
    (two / "tokenizer_config.json").write_text('{"separate_vocabs": true}')
    refused(two, r"two has a vocabulary for each language")
    merged = save_marian(tmp_path / "merged")
    (merged / "target.spm").write_bytes(sentencepiece_model(CORPUS, 80, model_type="bpe"))
    refused(merged, r"merged.*unigram")
    cut = save_marian(tmp_path / "cut")
    (cut / "source.spm").write_bytes((cut / "source.spm").read_bytes()[:1000])
    refused(cut, r"tokenizer files of .*cut cannot be read", ModelError)


def test_packages_that_are_missing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = t5(tmp_path / "tiny-t5")
    monkeypatch.setattr(conversion, "find_spec", lambda name: None if name == "sentencepiece" else name)
    with pytest.raises(
        UnsupportedError,
        match=r"tokenizer of .*tiny-t5 needs sentencepiece: pip install 'draftwise\[torch\]'",
    ):
        load(folder, engine="torch")
