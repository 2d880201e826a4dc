import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

OPTIONS: list[object] = ["--engine", "torch", "--max-new-tokens", 12, "--num-draft-tokens", 3]
LINES: list[dict[str, Any]] = [
    {"prompt": "The lazy dog"},
    {"messages": [{"role": "user", "content": "fox"}], "max_new_tokens": 3},
    {"prompt": "A quick fox", "temperature": 0.9, "seed": 5, "top_k": 20},
    {"prompt": [5, 6, 7], "stop_token_ids": [9]},
    {"prompt": "The lazy dog", "temperature": 1.0, "seed": 6, "logprobs": 2},
]


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in LINES), encoding="utf-8")
    return file


def answers(text: str) -> list[dict[str, Any]]:
    return sorted((json.loads(line) for line in text.splitlines()), key=lambda answer: answer["index"])


def token_ids(text: str) -> list[list[list[int]]]:
    return [[sample["token_ids"] for sample in answer["samples"]] for answer in answers(text)]


@pytest.mark.parametrize("batch_size", [1, 3])
def test_each_line_is_answered_as_alone(batch_size: int, run: Run, llama: Path, prompts: Path) -> None:
    command = ["generate", "--raw", "--target", llama, *OPTIONS]
    result = run(*command, "--prompts", prompts, "--batch-size", batch_size)
    assert (result.code, result.err) == (0, "")
    found = answers(result.out)
    assert [answer["index"] for answer in found] == [0, 1, 2, 3, 4]
    first = json.loads(run(*command, "The lazy dog", "--json").out)
    third = json.loads(
        run(*command, "A quick fox", "--json", "--temperature", 0.9, "--seed", 5, "--top-k", 20).out
    )
    assert found[0]["samples"][0]["token_ids"] == first["token_ids"]
    assert found[0]["samples"][0]["text"] == first["text"]
    assert len(found[1]["samples"][0]["token_ids"]) == 3
    assert found[2]["samples"][0]["token_ids"] == third["token_ids"]
    assert "logprobs" not in found[3]["samples"][0]
    assert all(len(token["top"]) == 2 for token in found[4]["samples"][0]["logprobs"])


@pytest.mark.parametrize("num_bytes", [0, 5, 40, None])
def test_what_was_cut_off_goes_on_where_it_stopped(
    num_bytes: int | None, run: Run, llama: Path, prompts: Path, tmp_path: Path
) -> None:
    """After two whole lines there is nothing, the beginning of a line, or a whole one without its end."""
    out = tmp_path / "out.jsonl"
    command = ["generate", "--raw", "--target", llama, *OPTIONS, "--prompts", prompts, "--out", out]
    assert run(*command).out == ""
    whole = out.read_bytes()
    lines = whole.splitlines(keepends=True)
    out.write_bytes(b"".join(lines[:2]) + lines[2][: -1 if num_bytes is None else num_bytes])
    assert run(*command).code == 0
    assert out.read_bytes().splitlines()[:2] == whole.splitlines()[:2]
    assert token_ids(out.read_text()) == token_ids(whole.decode())
    again = out.read_bytes()
    assert run(*command).code == 0
    assert out.read_bytes() == again
    for options in (["--temperature", 0.5], ["--dtype", "float64"]):
        other = run(*command, *options)
        assert other.code == 2
        assert "holds something other than answers to these prompts with these options" in other.err


@pytest.mark.parametrize("content", ["a note", "a note\n", "a note\nand its end", "[" * 100_000 + "\n"])
def test_a_file_of_something_else_stays_as_it_is(
    content: str, run: Run, llama: Path, prompts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text(content)
    assert run("generate", "--target", llama, *OPTIONS, "--prompts", prompts, "--out", out).code == 2
    assert out.read_text() == content


def test_samples_of_one_prompt(run: Run, llama: Path) -> None:
    command = ["generate", "The lazy dog", "--raw", "--target", llama, *OPTIONS, "--temperature", 1.0]
    printed = json.loads(run(*command, "-n", 3, "--seed", 4, "--json").out)
    texts = [sample["text"] for sample in printed["samples"]]
    for number, text in enumerate(texts):
        assert json.loads(run(*command, "--seed", 4 + number, "--json").out)["text"] == text
    assert run(*command, "-n", 3, "--seed", 4).out == "\n\n".join(texts) + "\n"


def test_logprobs_in_json(run: Run, llama: Path) -> None:
    printed = json.loads(
        run("generate", "fox", "--raw", "--target", llama, *OPTIONS, "--json", "--logprobs", 2).out
    )
    reports = printed["logprobs"]
    assert [report["token_id"] for report in reports] == printed["token_ids"]
    for report in reports:
        assert report["distribution"] == "raw"
        assert report["top"][0] == [report["token_id"], report["logprob"]]
        assert report["logprob"] > report["top"][1][1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "this is not JSON"),
        ("[" * 100_000, "this is not JSON"),
        ('{"text": "a"}', "this is no object with either a prompt or messages"),
        ('{"prompt": "a", "messages": []}', "this is no object with either"),
        ('{"prompt": "a", "temprature": 1}', "'temprature' is no option"),
        ('{"prompt": "a", "temperature": -1}', "temperature is -1"),
        ('{"prompt": "a", "temperature": NaN}', "temperature is nan"),
        ('{"prompt": "a", "top_k": true}', "top_k is True; give a whole number"),
        ('{"prompt": "a", "max_new_tokens": 1.5}', "max_new_tokens is 1.5; give a whole number"),
        ('{"prompt": "a", "verification": ["token"]}', "verification is ['token']; give one of"),
        ('{"prompt": "a", "ignore_eos": "no"}', "ignore_eos is 'no'; give True or False"),
        ('{"prompt": "a", "logprobs_of": "both"}', "logprobs_of is 'both'; give raw or adjusted"),
        ('{"prompt": "a", "stop_token_ids": [9999]}', "stop_token_ids has token id 9999, which is outside"),
        ('{"prompt": ""}', "the prompt is empty"),
        ('{"prompt": [9999]}', "token id 9999 is outside"),
        ('{"prompt": 5}', "the prompt is none of text"),
    ],
)
def test_a_line_that_is_no_request_is_refused(
    line: str, message: str, run: Run, llama: Path, tmp_path: Path
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(f'{{"prompt": "a"}}\n{line}\n', encoding="utf-8")
    result = run("generate", "--target", llama, *OPTIONS, "--prompts", file)
    assert (result.code, result.out) == (2, "")
    assert f"error: line 2 of {file}: {message}" in result.err
    assert len(result.err.splitlines()) == 1


def test_lines_are_those_of_an_editor(run: Run, llama: Path, tmp_path: Path) -> None:
    """Empty ones count, other separators of lines inside of a text do not, and a mark of UTF-8 is no text."""
    file = tmp_path / "prompts.jsonl"
    file.write_text('\ufeff{"prompt": "a\u2028b"}\r\n\n{"prompt": "c", "seed": -1}\n', encoding="utf-8")
    command = ["generate", "--raw", "--target", llama, *OPTIONS, "--prompts", file]
    assert f"line 3 of {file}: seed is -1" in run(*command).err
    file.write_text('\ufeff{"prompt": "a\u2028b"}\r\n\n{"prompt": "c"}\n', encoding="utf-8")
    assert len(answers(run(*command).out)) == 2


@pytest.mark.parametrize("out", [".", "missing/answers.jsonl"])
def test_an_output_that_cannot_be_written_is_refused_before_a_model_is_loaded(
    out: str, run: Run, prompts: Path, tmp_path: Path
) -> None:
    result = run("generate", "--target", "./nowhere", "--prompts", prompts, "--out", tmp_path / out)
    assert (result.code, result.out) == (2, "")
    assert f"{tmp_path / out} cannot be written" in result.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["a", "--prompts", "x"], "--prompts goes with no other prompt"),
        (["a", "--out", "x"], "--out is where the answers to --prompts go"),
        (["a", "-n", 2, "--compare"], "--compare is of one output"),
        (["a", "--logprobs", 1], "--logprobs goes with --json or --prompts"),
        (["--prompts", "nowhere.jsonl"], "cannot be read"),
        (["--prompts", "x", "--batch-size", 0], "Invalid value for '--batch-size'"),
    ],
)
def test_options_that_contradict_are_refused(
    options: list[object], message: str, run: Run, llama: Path
) -> None:
    result = run("generate", *options, "--target", llama, *OPTIONS)
    assert result.code == 2
    assert message in result.err
