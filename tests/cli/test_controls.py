"""The controls of `draftwise generate`: each does what the library does with it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import draftwise
from draftwise.sampling.grammar import Grammar
from tests.cli.conftest import Run

PROMPT = "The quick brown fox jumps over the lazy dog. The quick brown"
OPTIONS = ["--raw", "--max-new-tokens", 24, "--engine", "torch", "--threads", 1, "--json", "--seed", 1]
EACH: dict[str, tuple[list[object], dict[str, Any]]] = {
    "typical": (["--temperature", 1, "--typical-p", 0.5], {"temperature": 1.0, "typical_p": 0.5}),
    "repetition": (["--repetition-penalty", 1.5], {"repetition_penalty": 1.5}),
    "presence": (["--presence-penalty", 0.7], {"presence_penalty": 0.7}),
    "frequency": (["--frequency-penalty", 0.7], {"frequency_penalty": 0.7}),
    "bias": (["--logit-bias", "7=2.5", "--logit-bias", "9=-1"], {"logit_bias": {7: 2.5, 9: -1.0}}),
    "bans": (["--ban", "fox", "--ban", "#9"], {"banned": ["fox", 9]}),
    "no early end": (["--min-new-tokens", 20], {"min_new_tokens": 20}),
    "regex": (["--regex", "[a-z]{3} [0-9]{2}"], {"grammar": Grammar.regex("[a-z]{3} [0-9]{2}")}),
}


@pytest.fixture(scope="module")
def model(llama: Path) -> draftwise.LanguageModel:
    return draftwise.load(llama, engine="torch", threads=1)


@pytest.mark.parametrize(("options", "controls"), EACH.values(), ids=EACH)
def test_each_control(
    options: list[object], controls: dict[str, Any], run: Run, llama: Path, model: draftwise.LanguageModel
) -> None:
    result = run("generate", PROMPT, "--target", llama, *OPTIONS, *options)
    assert (result.code, result.err) == (0, "")
    expected = draftwise.generate(
        model,
        PROMPT,
        sampling=draftwise.SamplingParams(**controls),
        drafter=draftwise.PromptLookup(),
        max_new_tokens=24,
        seed=1,
    )
    assert json.loads(result.out)["text"] == expected.text


def test_grammars_from_files(run: Run, llama: Path, tmp_path: Path) -> None:
    schema, rules = tmp_path / "schema.json", tmp_path / "rules.lark"
    schema.write_text('{"type": "array", "items": {"enum": [1, 2]}, "maxItems": 2}')
    rules.write_text("start: /[ab]/ number\nnumber: /[0-9]{1,3}/\n")
    for options, fits in (
        (["--schema", schema], lambda text: set(json.loads(text)) <= {1, 2}),
        (["--grammar", rules], lambda text: re.fullmatch("[ab][0-9]{1,3}", text)),
    ):
        for seed in range(3):
            sampled = [*OPTIONS[:-1], seed, "--max-new-tokens", 200, "--temperature", 1]
            result = run("generate", PROMPT, "--target", llama, *sampled, *options)
            assert (result.code, result.err) == (0, "")
            printed = json.loads(result.out)
            assert printed["finish_reason"] == "eos"
            assert fits(printed["text"])


def test_a_comparison_warms_up_beyond_the_minimum(run: Run, llama: Path) -> None:
    options = ["--raw", "--engine", "torch", "--threads", 1, "--max-new-tokens", 24, "--min-new-tokens", 22]
    assert run("generate", PROMPT, "--target", llama, *options, "--compare").code == 0
