"""What is not a number, a prompt or text is refused where it is given, in one sentence that names it."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from draftwise.auditing.audit import audit
from draftwise.batch import Batch
from draftwise.batches import generate_batch
from draftwise.checks import listed, number, token_ids, whole_number
from draftwise.control.fixed import Fixed
from draftwise.decoding import generate
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.input_copy import InputCopy
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.drafters.recycling import TokenRecycling
from draftwise.drafters.suffix import Suffix
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
LOOKUP: Any = PromptLookup()


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
@pytest.mark.parametrize("odd", ["3", 3.5, [3], True])
def test_whole_numbers(make: Any, name: str, odd: object) -> None:
    with pytest.raises(OptionError, match=f"{name} is .*; give a whole number"):
        make(odd)


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p"])
@pytest.mark.parametrize("odd", ["1", None, True])
def test_numbers(name: str, odd: object) -> None:
    with pytest.raises(OptionError, match=f"{name} is .*; give a number"):
        SamplingParams(**{name: odd})  # type: ignore[arg-type]


def test_a_number_that_no_float_holds() -> None:
    with pytest.raises(OptionError, match="temperature is too large for a float; give a smaller number"):
        SamplingParams(10**400)


@pytest.mark.parametrize(
    "make",
    [
        lambda odd: _generate(stop_token_ids=odd),
        lambda odd: InputCopy(odd),
        lambda odd: score(MODEL, [1], odd),
    ],
    ids=["stop_token_ids", "source", "continuation"],
)
@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (b"12", "give a list of token ids"),
        ({1: 2}, "give a list of token ids"),
        (["1"], "is '1'; give a whole number"),
        ([1.5], "is 1.5; give a whole number"),
        ([[1]], "is [1]; give a whole number"),
        ([True], "is True; give a whole number"),
        ([-1], "is -1; give at least 0"),
    ],
)
def test_token_ids(make: Callable[[Any], object], odd: Any, words: str) -> None:
    with pytest.raises(OptionError, match=re.escape(words)):
        make(odd)


def test_collections_of_any_library_are_lists() -> None:
    assert token_ids("x", np.array([3, 1])) == (3, 1)
    assert listed("x", {5: 1}.keys(), "a list") == (5,)


@pytest.mark.parametrize("odd", ["x", [3], [(1,)], [(1, "x")], [(1, 2.5)], [(2, 1), (1, 1)], [(0, 1)], []])
def test_draft_lengths_are_pairs(odd: Any) -> None:
    with pytest.raises(OptionError, match=re.escape(f"draft_lengths is {odd!r}; give pairs")):
        PromptLookup(odd)


def test_text_is_no_list_of_prompts() -> None:
    with pytest.raises(OptionError, match="prompts is 'abc'; give a list of prompts"):
        generate_batch(MODEL, "abc")
    with pytest.raises(OptionError, match="prompts is 'abc'; give a list of prompts"):
        audit(MODEL, PromptLookup(), "abc")


def test_an_array_of_no_axes_is_no_list_of_prompts() -> None:
    with pytest.raises(OptionError, match="give a list of prompts"):
        generate_batch(MODEL, np.array(5))  # type: ignore[arg-type]


def test_stop_strings_are_text() -> None:
    with pytest.raises(OptionError, match="stop_token_ids"):
        StopConditions(3, stop_strings=(5,))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "odd",
    [None, 5, np.int64(5), np.array(5), {1, 2}, b"hello", {"role": "user", "content": "x"}, [1.5], [{}, 5]],
)
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
        (lambda odd: _generate(num_draft_tokens=odd), "num_draft_tokens is {}; give"),
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
        (lambda odd: _generate(verification=odd), "verification is {}; give one of auto, token"),
        (lambda odd: _generate(lenience=odd, verification="lenient"), "lenience is {}; give a number"),
        (lambda odd: _generate(ignore_eos=odd), "ignore_eos is {}; give True or False"),
        (lambda odd: _generate(width_invariant=odd), "width_invariant is {}; give True or False"),
        (lambda odd: _generate(logprobs=odd), "logprobs is {}; give a whole number"),
        (lambda odd: _generate(logprobs_of=odd), "logprobs_of is {}; give raw or adjusted"),
        (lambda odd: generate_batch(MODEL, odd), "prompts is {}; give a list of prompts"),
        (lambda odd: generate_batch(MODEL, [[1]], max_rows=odd), "max_rows is {}; give a whole number"),
        (lambda odd: score(MODEL, [1], odd), "continuation is {}; give a list of token ids"),
        (lambda odd: score(MODEL, [1], [2], num_top=odd), "num_top is {}; give a whole number"),
        (lambda odd: audit(MODEL, odd, [[1]]), "a drafter is {}; give one such as"),
        (lambda odd: audit(MODEL, LOOKUP, odd), "prompts is {}; give a list of prompts"),
        (lambda odd: audit(MODEL, LOOKUP, [[1]], sampling=odd), "sampling is {}; give a SamplingParams"),
        (lambda odd: audit(MODEL, LOOKUP, [[1]], seed=odd), "seed is {}; give a whole number"),
        (lambda odd: Batch(odd, 1, 5), "target is {}; give a model"),
        (lambda odd: Batch(MODEL, 1, odd), "max_length is {}; give a whole number"),
        (lambda odd: Batch(MODEL, 1, 5).add(odd), "a sequence is {}; give what Request(...)"),
        (lambda odd: Batch(MODEL, 1, 5).remove(odd), "row is {}; give a whole number"),
        (lambda odd: PromptLookup(odd), "draft_lengths is {}; give pairs"),
        (lambda odd: InputCopy(odd), "source is {}; give a list of token ids"),
        (lambda odd: TokenRecycling(odd), "num_candidates is {}; give a whole number"),
        (lambda odd: Suffix(odd), "corpus is {}; give a Corpus"),
        (lambda odd: DraftModel(MODEL, num_draft_tokens=odd), "num_draft_tokens is {}; give a whole number"),
        (lambda odd: TreeDraftModel(MODEL, odd), "shape is {}; give a StaticTree or a DynamicTree"),
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
