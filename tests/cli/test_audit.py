"""`draftwise audit` on tiny models."""

import json
from pathlib import Path

import pytest

from draftwise.verification import RULES
from tests.auditing.test_audit import accepting_all
from tests.cli.conftest import Run

QUICK = ["--engine", "torch", "--max-new-tokens", "8", "--samples", "12"]


def test_every_drafter_is_audited(run: Run, llama: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "one two one two"}\n{"prompt": "add add add"}\n{"prompt": "x"}\n')
    result = run(
        "audit", prompts, "--target", llama, "--drafter", "lookup,suffix", "--num-prompts", 2, *QUICK
    )
    assert result.code == 0
    assert result.out.count("verdict    ") == 2
    assert result.out.count("2 of 2 outputs") == 2
    assert "tiny-llama with drafts by prompt-lookup, temperature 1" in result.out


def test_a_fault_is_the_exit_code(run: Run, llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["audit", "--target", llama, "--temperature", 0, "--json", *QUICK]
    sound = run(*options)
    assert (sound.code, json.loads(sound.out)["findings"]["greedy"]) == (0, "exact")
    monkeypatch.setitem(RULES, "auto", accepting_all)
    broken = run(*options)
    assert (broken.code, json.loads(broken.out)["verdict"]) == (1, "fault")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--verification", "hopeful"], "verification is 'hopeful'"),
        (["--temperature", "-1"], "temperature is -1"),
        (["--drafter", "draft-model"], "write draft-model=MODEL"),
        (["--samples", "0"], "Invalid value for '--samples'"),
    ],
)
def test_bad_options_are_refused(options: list[str], message: str, run: Run, llama: Path) -> None:
    result = run("audit", "--target", llama, "--engine", "torch", *options)
    assert result.code == 2
    assert message in result.err
