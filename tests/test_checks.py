"""What is not a number, a prompt or text is refused where it is given, in one sentence that names it."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from draftwise.batches import generate_batch
from draftwise.checks import number, whole_number
from draftwise.control.fixed import Fixed
from draftwise.decoding import generate
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.drafters.translation.model import TranslatedModel
from draftwise.drafters.translation.text import TextDraftModel
from draftwise.drafters.tree import TreeDraftModel
from draftwise.errors import OptionError, PromptError
from draftwise.models.load import load
from draftwise.models.tabular import TabularModel
from draftwise.prompt import encode_prompt
from draftwise.randomness import Streams
from draftwise.sampling import SamplingParams
from draftwise.sampling.grammar import Grammar
from draftwise.scoring import score
from draftwise.sequence import StopConditions

MODEL: Any = TabularModel.random(5)


def test_numbers_of_any_library_are_numbers() -> None:
    assert whole_number("n", np.int64(3)) == 3
    assert number("x", np.float32(0.5)) == 0.5
    assert number("x", 1) == 1.0


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda odd: StopConditions(odd), "max_new_tokens"),
        (lambda odd: Fixed(odd), "num_draft_tokens"),
        (lambda odd: SamplingParams(top_k=odd), "top_k"),
        (lambda odd: Streams.seeded(odd), "seed"),
    ],
)
@pytest.mark.parametrize("odd", ["3", 3.5, [3]])
def test_whole_numbers(make: Any, name: str, odd: object) -> None:
    with pytest.raises(OptionError, match=f"{name} is .*; give a whole number"):
        make(odd)


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p"])
@pytest.mark.parametrize("odd", ["1", None])
def test_numbers(name: str, odd: object) -> None:
    with pytest.raises(OptionError, match=f"{name} is .*; give a number"):
        SamplingParams(**{name: odd})  # type: ignore[arg-type]


def test_stop_strings_are_text() -> None:
    with pytest.raises(OptionError, match="stop_token_ids"):
        StopConditions(3, stop_strings=(5,))  # type: ignore[arg-type]


@pytest.mark.parametrize("odd", [None, 5, {1, 2}, b"hello", {"role": "user", "content": "x"}, [1.5], [{}, 5]])
def test_a_prompt_is_text_token_ids_or_messages(odd: Any) -> None:
    with pytest.raises(PromptError, match="none of text"):
        encode_prompt(MODEL, odd)


def _generate(**options: Any) -> None:
    generate(MODEL, [1], **{"max_new_tokens": 3, **options})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda odd: generate(odd, [1]), "target is {}; give a model"),
        (lambda odd: generate_batch(odd, [[1]]), "target is {}; give a model"),
        (lambda odd: score(odd, [1], [2]), "target is {}; give a model"),
        (lambda odd: _generate(drafter=odd), "a drafter is {}; give one such as"),
        (lambda odd: _generate(drafter=[PromptLookup(), odd]), "a drafter is {}; give one such as"),
        (lambda odd: _generate(sampling=odd), "sampling is {}; give a SamplingParams"),
        (lambda odd: score(MODEL, [1], [2], sampling=odd), "sampling is {}; give a SamplingParams"),
        (lambda odd: _generate(num_draft_tokens=odd), "num_draft_tokens is {}; give a whole number"),
        (lambda odd: _generate(stop=odd), "stop is {}; give text"),
        (lambda odd: _generate(stop_token_ids=odd), "stop_token_ids is {}; give a list"),
        (lambda odd: SamplingParams(grammar=odd), "grammar is {}; give a Grammar"),
        (lambda odd: Grammar.regex(odd), "the regular expression is {}; give text"),
        (lambda odd: Grammar.lark(odd), "the grammar is {}; give text"),
        (lambda odd: Grammar.json_schema(odd), "the JSON schema is {}; give JSON text or an object"),
        (lambda odd: DraftModel(odd), "model is {}; give a model"),
        (lambda odd: DraftModel(MODEL, drafter=odd), "a drafter is {}; give one such as"),
        (lambda odd: TreeDraftModel(odd), "model is {}; give a model"),
        (lambda odd: TextDraftModel(odd), "model is {}; give a model"),
        (lambda odd: TranslatedModel(odd, MODEL), "model is {}; give a model"),
        (lambda odd: TranslatedModel(MODEL, odd), "target is {}; give a model"),
        (lambda odd: load(odd), "source is {}; give the name"),
    ],
)
@pytest.mark.parametrize("odd", [1.5, PromptLookup], ids=str)
def test_what_is_of_the_wrong_kind(call: Callable[[Any], object], words: str, odd: object) -> None:
    with pytest.raises(OptionError, match=re.escape(words.format(repr(odd)))):
        call(odd)


def test_a_name_is_no_drafter_and_no_model() -> None:
    with pytest.raises(OptionError, match="a drafter is 'lookup'"):
        _generate(drafter="lookup")
    with pytest.raises(
        OptionError, match=r"model is 'smollm2-135m-instruct'; give a model, as draftwise.load"
    ):
        DraftModel("smollm2-135m-instruct")  # type: ignore[arg-type]


def test_numbers_of_any_library_are_numbers_of_draft_tokens() -> None:
    numbers: list[Any] = [3, np.int64(3)]
    results = [
        generate(MODEL, [1, 2, 1, 2], drafter=PromptLookup(), num_draft_tokens=number, max_new_tokens=6)
        for number in numbers
    ]
    assert [len(step.drafted) for step in results[0].steps] == [
        len(step.drafted) for step in results[1].steps
    ]
