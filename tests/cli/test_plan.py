"""`draftwise plan`: tables, JSON, pictures and bad input, on tiny models."""

import json
from pathlib import Path
from typing import Any

import pytest

from draftwise.planning import timing
from tests.cli.conftest import Run
from tests.cli.test_bad_input import assert_one_sentence
from tests.cli.test_heads import save_heads

QUICK = ["--max-new-tokens", 24, "--max-draft-tokens", 4, "--engine", "torch", "--threads", 1, "--raw"]


@pytest.fixture(autouse=True)
def _one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """How exact the timings are is of no interest here."""
    monkeypatch.setattr(timing, "MIN_ROUNDS", 1)
    monkeypatch.setattr(timing, "MAX_ROUNDS", 1)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    rows = [
        {"category": "foxes", "turns": ["The quick brown fox jumps over the lazy dog. The quick brown"]},
        {"category": "code", "prompt": "def add(left, right):"},
        {"category": "code", "prompt": "def add(right, left):"},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def plan_json(run: Run, *options: object) -> dict[str, Any]:
    result = run("plan", *QUICK, "--json", *options)
    assert result.code == 0, result.err
    printed: dict[str, Any] = json.loads(result.out)
    (plan,) = printed["plans"]
    return dict(plan)


def test_tables(run: Run, llama: Path, prompts: Path) -> None:
    result = run("plan", *QUICK, "--target", llama, "--prompts", prompts, "--check")
    assert (result.code, result.err) == (0, "")
    printed = " ".join(result.out.split())
    for words in ("3 prompts, 72 tokens, 2 tasks", "lookup", "auto", "none", "speed-up", "foxes", "code"):
        assert words in printed
    assert "predicted against measured" in printed
    assert "in the median" in printed


def test_every_drafter_and_length_is_predicted(
    run: Run, llama: Path, other_llama: Path, prompts: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("The quick brown fox jumps over the lazy dog. " * 3, encoding="utf-8")
    drafters = f"lookup, none, draft-model={llama}, draft-model={other_llama}, ngram={corpus}"
    plan = plan_json(run, "--target", llama, "--drafters", drafters, "--prompts", prompts)
    by_name = {candidate["drafter"]: candidate for candidate in plan["drafters"]}
    assert list(by_name) == [name.strip() for name in drafters.split(",") if name.strip() != "none"]
    for candidate in by_name.values():
        assert [choice["num_draft_tokens"] for choice in candidate["choices"]] == [1, 2, 3, 4]
        assert set(candidate["choices"][0]["speedup_by_task"]) == {"foxes", "code"}
    twin = by_name[f"draft-model={llama}"]
    assert twin["alpha"] == 1
    assert twin["memory_cost"] == 1
    assert twin["choices"][3]["tokens_per_pass"] > 4
    assert by_name["lookup"]["memory_cost"] == 0
    assert plan["plain"]["speedup"] == 1
    auto = plan["auto"]
    assert auto["num_draft_tokens"] == "auto"
    assert set(auto["speedup_by_task"]) == {"foxes", "code"}
    fastest = max(
        auto["speedup"], 1.0, *(each["speedup"] for one in by_name.values() for each in one["choices"])
    )
    every = " + ".join(by_name)
    assert plan["best"]["drafter"] in [*by_name, every, "none"]
    assert (plan["best"]["num_draft_tokens"] == "auto") == (auto["speedup"] == fastest)


def test_one_prompt_of_each_task_and_a_check(run: Run, llama: Path, prompts: Path) -> None:
    plan = plan_json(run, "--target", llama, "--prompts", prompts, "--prompts-per-task", 1, "--check")
    assert plan["prompts"] == 2
    assert "auto" in [one["num_draft_tokens"] for one in plan["check"]["choices"]]
    for one in plan["check"]["choices"]:
        assert one["predicted_tokens_per_pass"] == pytest.approx(one["tokens_per_pass"])
        assert one["ratio"] == pytest.approx(one["predicted_speedup"] / one["speedup"])
    assert plan["check"]["median_error"] <= plan["check"]["largest_error"]


def test_a_profile_is_kept(run: Run, llama: Path, prompts: Path, tmp_path: Path) -> None:
    first = plan_json(run, "--target", llama, "--prompts", prompts)
    second = plan_json(run, "--target", llama, "--prompts", prompts)
    assert first["verify_seconds"] == second["verify_seconds"]
    third = plan_json(run, "--target", llama, "--prompts", prompts, "--remeasure")
    assert first["verify_seconds"] != third["verify_seconds"]
    assert len(list((tmp_path / "cache" / "profiles").glob("*.json"))) == 1


def test_pictures(run: Run, llama: Path, prompts: Path, tmp_path: Path) -> None:
    result = run(
        "plan", *QUICK, "--target", llama, "--prompts", prompts, "--plot", tmp_path / "out" / "plan.png"
    )
    assert result.code == 0
    assert (tmp_path / "out" / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert "verification curve" in (tmp_path / "out" / "plan.svg").read_text(encoding="utf-8")
    assert "plan.svg" in result.out


def test_a_picture_that_cannot_be_is_refused_before_the_work(run: Run, prompts: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run(
        "plan",
        "--target",
        tmp_path / "no model",
        "--prompts",
        prompts,
        "--plot",
        tmp_path / "file" / "plan.png",
    )
    assert result.code == 2
    assert "cannot be written" in result.err


def test_sampled_text_in_two_precisions(run: Run, llama: Path, prompts: Path) -> None:
    options = ["--temperature", 0.8, "--dtype", "float32", "--dtype", "bfloat16", "--json"]
    result = run("plan", *QUICK, "--target", llama, "--prompts", prompts, *options)
    assert result.code == 0, result.err
    plans = json.loads(result.out)["plans"]
    assert ["float32" in plan["runs_on"] for plan in plans] == [True, False]
    assert plans[0]["temperature"] == 0.8


def test_heads_are_replayed_on_the_hidden_states(
    run: Run, llama: Path, prompts: Path, tmp_path: Path
) -> None:
    drafters = f"heads={save_heads(tmp_path / 'heads')}"
    plan = plan_json(run, "--target", llama, "--drafters", drafters, "--prompts", prompts, "--check")
    for one in plan["check"]["choices"]:
        assert one["predicted_tokens_per_pass"] == pytest.approx(one["tokens_per_pass"])


def test_a_conversation_is_gone_on_with(run: Run, llama: Path, other_llama: Path, tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    messages = [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Hello."}]
    file.write_text(json.dumps({"messages": messages}) + "\n", encoding="utf-8")
    assert plan_json(run, "--target", llama, "--prompts", file)["prompts"] == 1
    refused = run("plan", *QUICK, "--target", other_llama, "--prompts", file)
    assert_one_sentence(refused, f"line 1 of {file}: {other_llama} has no chat template")


@pytest.mark.parametrize(
    "line", [{"messages": [{"role": "user", "content": None}]}, {"prompt": "word " * 300}]
)
def test_what_cannot_be_read_is_named_before_anything_is_timed(
    line: dict[str, Any], run: Run, llama: Path, tmp_path: Path
) -> None:
    file = tmp_path / "odd.jsonl"
    file.write_text('{"prompt": "a"}\n' + json.dumps(line), encoding="utf-8")
    options = [each for each in QUICK if each != "--raw"]
    assert_one_sentence(run("plan", "--target", llama, "--prompts", file, *options), f"line 2 of {file}: ")
    assert not (tmp_path / "cache" / "profiles").exists()


def test_what_cannot_be_foretold_is_refused_before_anything_is_timed(
    run: Run, llama: Path, other_llama: Path, prompts: Path, tmp_path: Path
) -> None:
    drafters = f"lookup, draft-model={other_llama}@4"
    refused = run("plan", "--target", llama, "--drafters", drafters, "--prompts", prompts, *QUICK)
    assert_one_sentence(refused, "as it drafts trees")
    assert not (tmp_path / "cache" / "profiles").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--drafters", "oracle"], '"oracle" is not a drafter; give some of lookup, none, draft-model=MODEL'),
        (["--drafters", "lookup,"], '"" is not a drafter'),
        (["--drafters", "draft-model"], "write draft-model=MODEL"),
        (["--drafters", "lookup=3"], "write lookup"),
        (["--drafters", "ngram=absent.npz"], "absent.npz"),
        (["--max-draft-tokens", "0"], "max-draft-tokens is 0"),
        (["--prompts-per-task", "0"], "prompts-per-task is 0"),
        (["--max-new-tokens", "0"], "max_new_tokens is 0"),
        (["--temperature", "-1"], "temperature is -1.0"),
        (["--max-new-tokens", "1000"], "holds at most 256 tokens"),
        (["--target", "no/where/model"], "no/where/model"),
    ],
)
def test_bad_options(options: list[str], words: str, run: Run, llama: Path, prompts: Path) -> None:
    given = ["--target", llama, "--prompts", prompts, *QUICK]
    assert_one_sentence(run("plan", *given, *options), words)


def test_a_missing_prompt_file(run: Run, llama: Path) -> None:
    given = ["--target", llama, *QUICK]
    assert_one_sentence(run("plan", *given, "--prompts", "absent.jsonl"), "absent.jsonl cannot be read")
    assert_one_sentence(run("plan", *given), "--prompts")
