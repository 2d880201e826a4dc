import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_bad_input import assert_one_sentence

ENGINE = ["--engine", "torch", "--threads", "1"]


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    rows = [
        {"category": "writing", "turns": ["The quick brown fox"]},
        {"category": "copying", "turns": ["fox fox fox fox fox fox"]},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_a_benchmark_and_its_report(
    run: Run, llama: Path, other_llama: Path, prompts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = ["bench", prompts, "--out", out, "--target", llama, *ENGINE, "--max-new-tokens", "12"]
    command += [
        "--drafters",
        f"lookup,draft-model={other_llama},draft-model={other_llama}@3x2",
        "--num-draft-tokens",
        "own,2",
        "--rounds",
        "1",
    ]
    result = run(*command)
    assert result.code == 0, result.err
    assert "writing" in result.out
    assert "report.html" in result.out
    lines = [json.loads(line) for line in (out / "runs.jsonl").read_text().splitlines()]
    assert len(lines) == 1 + 2 * 7
    assert {line["drafter"] for line in lines[1:]} == {
        "none",
        "lookup",
        f"draft-model={other_llama}",
        f"draft-model={other_llama}@3x2",
    }
    assert len({line["output"] for line in lines[1:] if line["prompt"] == 0}) == 1
    assert (out / "report.html").read_text().count("<svg") >= 3
    assert (out / "speedup.svg").exists()
    assert (out / "speedup.png").exists()

    written = (out / "runs.jsonl").read_bytes()
    assert run(*command).code == 0
    assert (out / "runs.jsonl").read_bytes() == written


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--num-draft-tokens", "0"], "num_draft_tokens is 0"),
        (["--num-draft-tokens", "some"], '--num-draft-tokens is "some"; give a number, auto or own'),
        (["--temperature", "0,hot"], '"hot" is not a number'),
        (["--temperature", "-1"], "temperature is -1.0"),
        (["--rounds", "0"], "rounds is 0"),
        (["--prompts-per-family", "0"], "prompts-per-family is 0"),
        (["--drafters", "oracle"], '"oracle" is not a drafter; give some of lookup'),
        (["--drafters", "ngram"], '"ngram" does not ask for a drafter; write ngram=PATH'),
        (["--drafters", "lookup=x"], '"lookup=x" does not ask for a drafter; write lookup'),
    ],
)
def test_bad_options(options: list[str], words: str, run: Run, prompts: Path, tmp_path: Path) -> None:
    assert_one_sentence(run("bench", prompts, "--out", tmp_path / "out", *options), words)


def test_files_that_do_not_fit(run: Run, prompts: Path, tmp_path: Path) -> None:
    assert_one_sentence(run("bench", tmp_path / "nowhere", "--out", tmp_path), "nowhere cannot be read")
    assert_one_sentence(run("bench", prompts, "--out", prompts), "cannot be read")
    (tmp_path / "runs.jsonl").write_text("something else\n")
    assert_one_sentence(run("bench", prompts, "--out", tmp_path), "something other than what this")
