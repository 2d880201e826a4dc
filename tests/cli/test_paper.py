import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_bad_input import assert_one_sentence

ENGINE = ["--engine", "torch", "--threads", "1"]


def test_theory_needs_no_model(run: Run, tmp_path: Path) -> None:
    result = run("paper", "--out", tmp_path / "out")
    assert result.code == 0, result.err
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count("<svg") == 3
    assert "6.86" in page
    assert "Table 3" not in page
    assert {file.name for file in (tmp_path / "out").glob("*.png")} == {
        f"figure-{number}.png" for number in (2, 3, 4)
    }


def test_all_experiments(run: Run, llama: Path, other_llama: Path, tmp_path: Path) -> None:
    prompts, corpus, out = tmp_path / "prompts.jsonl", tmp_path / "corpus.txt", tmp_path / "out"
    prompts.write_text('{"question": "fox fox fox fox"}\n{"question": "The lazy dog"}\n')
    corpus.write_text("The quick brown fox jumps over the lazy dog. " * 5)
    command = ["paper", "--out", out, "--prompts", prompts, "--corpus", corpus, "--target", llama, *ENGINE]
    command += ["--draft-model", other_llama, "--tokens", "20", "--max-new-tokens", "12", "--rounds", "1"]
    result = run(*command)
    assert result.code == 0, result.err
    results = json.loads((out / "results.json").read_text())
    found = {(row["drafter"], row["temperature"]): row for row in results["acceptance"]}
    assert set(found) == {
        (name, temperature)
        for name in (other_llama.name, "unigram", "bigram", "lookup")
        for temperature in (0.0, 1.0)
    }
    for row in found.values():
        assert row["tokens"] >= 20
        assert (row["alphas"] is None) == (row["coverage"] == 0)
        assert all(0 <= alpha <= 1 for alpha in row["alphas"] or ())
        assert (row["alphas"] or []) == sorted(row["alphas"] or [])
    assert found["bigram", 1.0]["coverage"] == 1
    measured = {(row["drafter"], row["temperature"]) for row in results["walltime"]}
    assert (other_llama.name, 1.0) in measured
    assert len(results["figure_5"]) == 3
    page = (out / "index.html").read_text()
    assert page.count("<svg") == 4
    assert "line-through" in page  # a rejected guess of Figure 1
    assert {file.stem for file in out.glob("*.svg")} == {f"figure-{number}" for number in range(1, 6)}

    written = {name: (out / name).read_bytes() for name in ("texts.jsonl", "walltime.jsonl")}
    assert run(*command).code == 0
    assert {name: (out / name).read_bytes() for name in written} == written
    again = json.loads((out / "results.json").read_text())
    assert again["acceptance"] == results["acceptance"]
    assert again["walltime"] == results["walltime"]
    assert run(*command, "--tokens", "5").code == 0  # the texts at hand are enough
    assert {name: (out / name).read_bytes() for name in written} == written
    assert_one_sentence(run(*command, "--max-new-tokens", "13"), "max_new_tokens: 12 there, 13 here")
    assert_one_sentence(run(*command, "--rounds", "2"), "rounds: 1 there, 2 here")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tokens", "0"], "tokens is 0"),
        (["--speed-prompts", "0"], "speed-prompts is 0"),
        (["--rounds", "0"], "rounds is 0"),
        (["--num-draft-tokens", "0"], "num_draft_tokens is 0"),
        (["--prompts", "nowhere.jsonl"], "nowhere.jsonl cannot be read"),
        (["--corpus", "nowhere.txt"], "nowhere.txt cannot be read"),
    ],
)
def test_bad_options(options: list[str], words: str, run: Run, tmp_path: Path) -> None:
    assert_one_sentence(run("paper", "--out", tmp_path / "out", *options), words)


def test_a_folder_that_cannot_be(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert_one_sentence(run("paper", "--out", tmp_path / "file"), "cannot be written")
