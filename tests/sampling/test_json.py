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


def test_outputs_fit_the_schema_and_are_those_of_plain_decoding(target: LanguageModel) -> None:
    """With coupled noise the same seed gives the same tokens, as far as the engine gives the same bits."""
    assert target.tokenizer is not None
    example = target.tokenizer.encode(EXAMPLE)
    bigram = NgramModel.count([example], target.vocab_size, tokenizer=target.tokenizer)
    drafters: list[Drafter] = [bigram.drafter(), PromptLookup(), NoDrafter()]
    for seed in range(2):
        outputs = []
        for num_draft_tokens, drafter in ((0, NoDrafter()), *((3, drafter) for drafter in drafters)):
            generation = generate(
                target,
                QUESTION,
                drafter=drafter,
                num_draft_tokens=num_draft_tokens,
                sampling=SamplingParams(1.0, grammar=Grammar.json_schema(SCHEMA)),
                max_new_tokens=300,
                verification="coupled",
                seed=seed,
            )
            assert generation.finish_reason is FinishReason.EOS
            value = json.loads(generation.text)
            assert list(value) == ["name", "age", "likes"]
            assert len(value["name"]) <= 8
            assert 0 <= value["age"] <= 120
            assert set(value["likes"]) <= {"tea", "jazz"}
            assert (sum(step.num_accepted for step in generation.steps) > 0) == (num_draft_tokens > 0)
            outputs.append(generation.token_ids)
        assert len(set(outputs)) == 1 or not target.width_invariant
