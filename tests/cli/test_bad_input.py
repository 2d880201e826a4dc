"""Bad input ends with exit code 2 and one sentence that names the thing."""

import io
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from draftwise.cli import main
from tests.cli.conftest import Result, Run
from tests.models.tiny import llama as make_llama
from tests.tiny_folders import CHATML, byte_level, save_tokenizer

TOKENS = ["--max-new-tokens", "8", "--engine", "torch", "--threads", "1"]


def assert_one_sentence(result: Result, words: str) -> None:
    assert result.code == 2
    assert result.out == ""
    (line,) = result.err.splitlines()
    assert line.startswith("error: ")
    assert words in line
    assert line.endswith(".")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--temperature", "-1"], "temperature is -1.0"),
        (["--top-p", "0"], "top_p is 0.0"),
        (["--top-p", "1.5"], "top_p is 1.5"),
        (["--top-k", "0"], "top_k is 0"),
        (["--min-p", "2"], "min_p is 2.0"),
        (["--typical-p", "0"], "typical_p is 0.0"),
        (["--repetition-penalty", "0"], "repetition_penalty is 0.0"),
        (["--presence-penalty", "nan"], "presence_penalty is nan"),
        (["--frequency-penalty", "inf"], "frequency_penalty is inf"),
        (["--logit-bias", "fox"], "--logit-bias is 'fox'; give a token id and a number"),
        (["--logit-bias", "5=1", "--logit-bias", "5=2"], "--logit-bias is given twice for token 5"),
        (["--logit-bias", "5=1e308"], "logit_bias of token 5 is 1e+308; give a number from"),
        (["--logit-bias", "5=nan"], "logit_bias of token 5 is nan; give a number from"),
        (["--logit-bias", "70000=1"], "logit_bias has token id 70000, which is outside"),
        (["--ban", ""], "banned holds something empty"),
        (["--ban", "#70000"], "banned has token id 70000, which is outside"),
        (["--min-new-tokens", "9"], "min_new_tokens is 9 and max_new_tokens 8"),
        (["--regex", "("], "unclosed group"),
        (["--regex", "a", "--schema", "schema.json"], "--schema and --regex are given; give one"),
        (["--schema", "missing.json"], "missing.json cannot be read"),
        (["--grammar", "missing.lark"], "missing.lark cannot be read"),
        (["--max-new-tokens", "0"], "max_new_tokens is 0"),
        (["--num-draft-tokens", "-1"], "num_draft_tokens is -1"),
        (["--num-draft-tokens", "1,2"], '--num-draft-tokens is "1,2"; give a number, auto or own'),
        (["--num-samples", "0"], "Invalid value for '--num-samples'"),
        (["--batch-size", "4"], "--batch-size goes with --prompts"),
        (["--verification", "hope"], "verification is 'hope'"),
        (["--stop", ""], "a stop string is empty"),
        (["--threads", "0"], "threads is 0"),
        (["--device", "abacus"], "abacus"),
        (["--dtype", "int3"], "int3"),
        (["--max-new-tokens", "100000"], "holds at most 256 tokens"),
    ],
)
def test_options_out_of_range(options: list[str], words: str, run: Run, llama: Path) -> None:
    assert_one_sentence(run("generate", "fox", "--target", llama, *TOKENS, *options), words)


@pytest.mark.parametrize("chat", ["--chat", "--raw"])
@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("", "the prompt is empty"),
        ("<|im_start|><|im_end|>", "special tokens and nothing else"),
        ("fox " * 400, "holds at most 256 tokens; shorten the prompt"),
    ],
)
def test_prompts_without_a_use(prompt: str, words: str, chat: str, run: Run, llama: Path) -> None:
    assert_one_sentence(run("generate", prompt, chat, "--target", llama, *TOKENS), words)


def test_prompts_that_are_no_text(
    run: Run, llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "latin.txt"
    file.write_bytes("café".encode("latin-1"))
    options = ["--target", llama, *TOKENS]
    assert_one_sentence(run("generate", "--file", file, *options), f"{file} is not UTF-8 text (byte 3)")
    assert_one_sentence(run("generate", "--file", tmp_path / "nowhere", *options), "nowhere cannot be read")
    assert_one_sentence(run("generate", "caf\udce9", *options), "the prompt is not valid Unicode text")
    assert_one_sentence(run("generate", "fox", "--ngram", file, *options), f"{file} is not UTF-8 text")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    assert_one_sentence(run("generate", *options), "standard input is not UTF-8 text")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert_one_sentence(run("generate", *options), "no prompt was given")


def test_models_that_are_none(run: Run, llama: Path, tmp_path: Path) -> None:
    unknown = tmp_path / "unknown"
    assert_one_sentence(run("generate", "fox", "--target", unknown), f"no file or folder {unknown}")

    no_tokenizer = tmp_path / "no-tokenizer"
    make_llama().save_pretrained(no_tokenizer)
    assert_one_sentence(run("generate", "fox", "--target", no_tokenizer), "has no tokenizer.json")

    truncated = tmp_path / "truncated.gguf"
    truncated.write_bytes(b"GGUF\x03\x00\x00\x00" + bytes(40))
    assert_one_sentence(run("generate", "fox", "--target", truncated), "cannot be read as GGUF")

    stranger = tmp_path / "stranger"
    make_llama(vocab_size=320).save_pretrained(stranger)
    save_tokenizer(byte_level(["other words altogether"] * 4), stranger, CHATML)
    # Its tokenizer is enough to refuse it, so that its weights are not even read.
    (stranger / "model.safetensors").write_bytes(b"")
    options = ["--target", llama, "--draft-model", stranger, *TOKENS]
    assert_one_sentence(run("generate", "fox", *options), "their tokenizers differ")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([], "Missing command."),
        (["fly"], "No such command 'fly'."),
        (["generate", "fox", "--wings", "2"], "No such option: --wings"),
        (["generate", "fox", "--top-k", "many"], "Invalid value for '--top-k'"),
        (["generate", "fox", "--drafter", "oracle"], "'oracle' is not one of"),
        (["convert", "fox"], "Missing option '--out'"),
    ],
)
def test_wrong_usage(command: list[str], words: str, run: Run) -> None:
    result = run(*command)
    assert (result.code, result.out) == (2, "")
    assert words in result.err
    assert len(result.err.splitlines()) == 1
    assert result.err.endswith(".\n")


@pytest.mark.parametrize("option", ["--num-prompts", "--num-draft-tokens", "--max-new-tokens", "--samples"])
def test_an_audit_of_nothing(option: str, run: Run) -> None:
    assert_one_sentence(run("audit", "--target", "./nowhere", option, "0"), f"Invalid value for '{option}'")


def test_the_version(run: Run) -> None:
    assert run("--version") == Result(0, f"draftwise {version('draftwise')}\n", "")


def test_the_console_script_exits_with_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["draftwise", "generate", "fox", "--top-p", "2"])
    assert main() == 2
