"""`draftwise generate`: what it prints, for every drafter, in text, colours and JSON."""

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import draftwise
from draftwise.cli.report import STYLES
from tests.cli.conftest import Run

PROMPT = "The quick brown fox jumps over the lazy dog. The quick brown"
NUM_TOKENS = 24
OWN = ["--num-draft-tokens", "own"]  # drafts that do not depend on the machine's speed
TOKENS = ["--max-new-tokens", NUM_TOKENS, "--engine", "torch", "--threads", 1]


@pytest.fixture
def expected(llama: Path) -> draftwise.Generation:
    """Plain decoding through the library."""
    model = draftwise.load(llama, engine="torch", threads=1)
    return draftwise.generate(model, PROMPT, max_new_tokens=NUM_TOKENS)


def generate_json(run: Run, target: Path, *options: object) -> dict[str, Any]:
    result = run("generate", PROMPT, "--raw", "--target", target, *TOKENS, "--json", *options)
    assert (result.code, result.err) == (0, "")
    printed: dict[str, Any] = json.loads(result.out)
    return printed


def test_text_goes_to_standard_output_and_the_closing_line_elsewhere(
    run: Run, llama: Path, expected: draftwise.Generation
) -> None:
    result = run("generate", PROMPT, "--raw", "--target", llama, *TOKENS)
    assert result.code == 0
    assert result.out == expected.text + "\n"
    figures = r"24 tokens · \d+ target passes · \d\.\d\d tokens a pass · acceptance rate \d\.\d\d · "
    assert re.fullmatch(figures + r"\d+\.\d tokens a second\n", result.err)


def test_the_prompt_comes_from_argument_file_or_standard_input(
    run: Run, llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--raw", "--target", llama, *TOKENS]
    file = tmp_path / "prompt.txt"
    file.write_text("lazy café", encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("lazy café".encode())))
    as_argument = run("generate", "lazy café", *options).out
    assert run("generate", "--file", file, *options).out == as_argument
    assert run("generate", *options).out == as_argument
    assert run("generate", "Fix this:", "--file", file, *options).out == (
        run("generate", "Fix this:\n\nlazy café", *options).out
    )


def test_a_model_with_a_template_is_chatted_with_unless_raw_is_asked_for(
    run: Run, llama: Path, other_llama: Path
) -> None:
    def prompt_tokens(target: Path, *options: str) -> int:
        result = run("generate", "fox", "--target", target, *TOKENS, "--json", *options)
        count: int = json.loads(result.out)["num_prompt_tokens"]
        return count

    assert prompt_tokens(llama) == prompt_tokens(llama, "--chat") > prompt_tokens(llama, "--raw")
    assert prompt_tokens(other_llama) == prompt_tokens(llama, "--raw")
    refused = run("generate", "fox", "--target", other_llama, *TOKENS, "--chat")
    assert refused.code == 2
    assert "no chat template; give the prompt as raw text" in refused.err


def test_json_accounts_for_every_token(run: Run, llama: Path, expected: draftwise.Generation) -> None:
    printed = generate_json(run, llama, "--num-draft-tokens", 3)
    assert printed["text"] == expected.text
    assert printed["token_ids"] == list(expected.token_ids)
    assert printed["finish_reason"] == "length"
    assert [token for step in printed["steps"] for token in step["emitted"]] == printed["token_ids"]
    assert all(len(step["drafted"]) <= 3 for step in printed["steps"])
    assert all(
        step["emitted"][: step["accepted"]] == step["drafted"][: step["accepted"]]
        for step in printed["steps"]
    )
    assert printed["target_passes"] == len(printed["steps"])
    assert printed["mean_acceptance_length"] == pytest.approx(NUM_TOKENS / len(printed["steps"]))
    assert 0 <= printed["acceptance_rate"] <= 1
    seconds = printed["seconds"]
    assert seconds["total"] == pytest.approx(seconds["draft"] + seconds["verify"] + seconds["other"])
    assert printed["decode_tokens_per_second"] > 0
    assert printed["width_invariant"] is False  # of the torch engine
    assert not {"plain", "speedup"} & printed.keys()


def test_compare_runs_plain_decoding_too(run: Run, llama: Path, expected: draftwise.Generation) -> None:
    printed = generate_json(run, llama, "--compare")
    plain = printed["plain"]
    assert plain["token_ids"] == printed["token_ids"] == list(expected.token_ids)
    assert (plain["target_passes"], plain["acceptance_rate"]) == (NUM_TOKENS, None)
    assert "steps" not in plain
    speeds = printed["decode_tokens_per_second"] / plain["decode_tokens_per_second"]
    assert printed["speedup"] == pytest.approx(speeds)

    shown = run("generate", PROMPT, "--raw", "--target", llama, *TOKENS, "--compare")
    assert shown.out == expected.text + "\n"
    assert re.search(r"\d+\.\d\d times as fast with drafts · the same tokens$", shown.err)
    one_pass = run("generate", PROMPT, "--target", llama, *TOKENS, "--compare", "--max-new-tokens", 1)
    assert "too short to time" in one_pass.err
    assert "too short to compare" in one_pass.err


def test_the_same_seed_gives_the_same_tokens(run: Run, llama: Path) -> None:
    def sampled(seed: int) -> list[int]:
        options = ["--temperature", 0.9, "--top-k", 50, "--top-p", 0.95, "--min-p", 0.01, "--seed", seed]
        token_ids: list[int] = generate_json(run, llama, *options)["token_ids"]
        return token_ids

    assert sampled(1) == sampled(1) != sampled(2)


def test_coupled_verification_gives_the_text_of_plain_decoding(run: Run, llama: Path) -> None:
    options = ["--temperature", 0.9, "--verification", "coupled", "--seed", 1]
    printed = generate_json(run, llama, *options, "--compare")
    assert printed["token_ids"] == printed["plain"]["token_ids"]
    assert printed["token_ids"] != generate_json(run, llama, *options[:-1], 2)["token_ids"]


def test_stop_strings_end_the_text(run: Run, llama: Path, expected: draftwise.Generation) -> None:
    stop = expected.text[10:13]
    printed = generate_json(run, llama, "--stop", "never seen", "--stop", stop)
    assert printed["finish_reason"] == "stop_string"
    assert printed["text"] == expected.text[: expected.text.index(stop)]


DRAFTERS = ["none", "lookup", "draft-model", "text", "ngram", "suffix", "copy", "recycling", "self"]


@pytest.mark.parametrize("drafter", [*DRAFTERS, "ngram-online", "exit", "skip", "tli", "slem", "tree"])
def test_every_drafter_gives_the_targets_text(
    drafter: str, run: Run, llama: Path, other_llama: Path, tmp_path: Path, expected: draftwise.Generation
) -> None:
    text, counted = tmp_path / "text.txt", tmp_path / "counts.npz"
    text.write_text(expected.text, encoding="utf-8")
    if drafter == "ngram":
        written = run("ngram", text, "--target", llama, "--order", 4, "--out", counted)
        assert (written.code, written.err) == (0, "")
        assert "4-grams of 1 file over" in written.out
    asked_for: dict[str, list[object]] = {
        "draft-model": ["--draft-model", other_llama],
        "text": ["--ngram", text],
        "ngram": ["--ngram", counted, "--drafter", "ngram"],
        "exit": ["--exit-layer", 1],
        "skip": ["--skip-layers", "0-0"],
        "tree": ["--draft-model", other_llama, "--tree", "3x2x1"],
        "tli": ["--drafter", "tli", "--draft-model", other_llama],
        "slem": ["--drafter", "slem", "--draft-model", other_llama],
    }
    printed = generate_json(run, llama, *asked_for.get(drafter, ["--drafter", drafter]), *OWN)
    assert printed["token_ids"] == list(expected.token_ids)
    assert (printed["acceptance_rate"] is None) == (drafter == "none")
    if drafter in ("ngram", "text"):
        assert printed["acceptance_rate"] > 0.5


def test_outputs_are_learnt_from_one_run_to_the_next(run: Run, llama: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.npz"
    first = generate_json(run, llama, "--corpus", corpus)
    second = generate_json(run, llama, "--corpus", corpus)
    assert second["token_ids"] == first["token_ids"]
    assert second["target_passes"] < first["target_passes"]
    corpus.write_bytes(b"nothing")
    refused = run("generate", PROMPT, "--target", llama, *TOKENS, "--corpus", corpus)
    assert refused.code == 2
    assert "not a whole corpus" in refused.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--skip-layers", "1-"], "skip_layers is '1-'; give numbers and ranges"),
        (["--skip-layers", "one"], "give numbers and ranges"),
        (["--skip-layers", "0-9"], "cannot be left out"),
        (["--exit-layer", 9], "exit_layer is 9"),
        (["--exit-layer", 1, "--skip-layers", "0"], "one of them"),
    ],
)
def test_impossible_layers_are_refused(options: list[object], message: str, run: Run, llama: Path) -> None:
    result = run("generate", PROMPT, "--target", llama, *TOKENS, *options)
    assert result.code == 2
    assert message in result.err


def test_the_target_as_its_own_draft_model_is_accepted_throughout(run: Run, llama: Path) -> None:
    printed = generate_json(run, llama, "--draft-model", llama, *OWN)
    assert printed["acceptance_rate"] == 1
    assert printed["mean_acceptance_length"] > 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--drafter", "draft-model"], "needs --draft-model MODEL"),
        (["--drafter", "ngram"], "needs --ngram PATH"),
        (["--drafter", "slem"], "needs --draft-model MODEL"),
        (
            ["--drafter", "lookup", "--draft-model", "x"],
            "--draft-model MODEL does not go with the drafter lookup",
        ),
        (["--ngram", "x", "--draft-model", "x"], "does not go with"),
        (["--drafter", "lookup", "--corpus", "x"], "--corpus PATH does not go with the drafter lookup"),
        (["--exit-layer", "1", "--corpus", "x"], "does not go with"),
    ],
)
def test_contradicting_drafters_are_refused(options: list[str], message: str, run: Run) -> None:
    result = run("generate", PROMPT, *options)
    assert result.code == 2
    assert message in result.err


def test_a_terminal_shows_where_each_token_came_from(
    run: Run, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = generate_json(run, llama, *OWN)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    result = run("generate", PROMPT, "--raw", "--target", llama, *TOKENS, *OWN)
    colours = {"accepted": "\x1b[32m", "recovered": "\x1b[94m", "bonus": "\x1b[35m"}
    legend, coloured = result.out.split("\n", 1)
    assert all(f"{colours[origin]}■ {origin}" in legend for origin in STYLES)
    text, closing = coloured.rsplit("\n", 2)[:2]
    assert re.sub(r"\x1b\[\d*m", "", text) == printed["text"]
    shown = re.findall(r"(\x1b\[\d+m)(.*?)\x1b\[0m", text)
    origins = [origin for step in printed["steps"] for origin in origins_of(step)]
    assert [colour for colour, _ in shown] == [colours[origin] for origin in origins]
    assert set(origins) == set(STYLES)
    assert "target passes" in closing
    assert result.err == ""


def origins_of(step: dict[str, Any]) -> list[str]:
    """The origin of each token emitted, from what --json says of a step."""
    own = "recovered" if step["accepted"] < len(step["drafted"]) else "bonus"
    return ["accepted"] * step["accepted"] + [own] * (len(step["emitted"]) - step["accepted"])


def test_interrupting_ends_quietly(run: Run, llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("draftwise.decoding.stream", interrupt)
    result = run("generate", PROMPT, "--target", llama, *TOKENS)
    assert result.code == 130
    assert "Traceback" not in result.err
