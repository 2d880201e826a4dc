"""JSON by a schema from a real model: it parses and fits, whoever drafts."""

import json

import pytest

from draftwise.decoding import generate
from draftwise.drafters.base import Drafter
from draftwise.drafters.ngram import NgramModel
from draftwise.drafters.none import NoDrafter
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.models.base import LanguageModel
from draftwise.models.load import load
from draftwise.sampling import SamplingParams
from draftwise.sampling.grammar import Grammar
from draftwise.types import FinishReason

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "likes": {"type": "array", "items": {"enum": ["tea", "jazz"]}, "maxItems": 2},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}
QUESTION = [{"role": "user", "content": "Invent a person, as JSON with name, age and likes."}]
EXAMPLE = json.dumps({"name": "Ann", "age": 30, "likes": ["tea", "jazz"]}, indent=2)


@pytest.fixture(scope="module")
def target() -> LanguageModel:
    return load("smollm2-135m-instruct", engine="onnx")


@pytest.mark.parametrize("verification", ["auto", "coupled"])
def test_outputs_fit_the_schema(target: LanguageModel, verification: str) -> None:
    assert target.tokenizer is not None
    bigram = NgramModel.count(
        [target.tokenizer.encode(EXAMPLE)], target.vocab_size, tokenizer=target.tokenizer
    )
    drafters: list[Drafter] = [bigram.drafter(), PromptLookup(), NoDrafter()]
    sampling = SamplingParams(1.0, grammar=Grammar.json_schema(SCHEMA))
    accepted = 0
    for seed, drafter in enumerate(drafters):
        generation = generate(
            target,
            QUESTION,
            drafter=drafter,
            sampling=sampling,
            max_new_tokens=300,
            verification=verification,
            seed=seed,
        )
        assert generation.finish_reason is FinishReason.EOS
        value = json.loads(generation.text)
        assert list(value) == ["name", "age", "likes"]
        assert len(value["name"]) <= 8
        assert 0 <= value["age"] <= 120
        assert set(value["likes"]) <= {"tea", "jazz"}
        accepted += sum(step.num_accepted for step in generation.steps)
    assert accepted > 0
