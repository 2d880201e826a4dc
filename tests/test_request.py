import re
from dataclasses import fields

import pytest

from draftwise.decoding import generate
from draftwise.models.tabular import TabularModel
from draftwise.request import Options, Request
from draftwise.sampling import SamplingParams

TARGET = TabularModel.random(5, 2, seed=1)


def test_the_keywords_are_the_fields() -> None:
    """Whoever gives options one by one can give all of them, of the same types."""
    assert Options.__annotations__ == {
        field.name: field.type for field in fields(Request) if field.name != "prompt"
    }


def test_every_option_is_explained() -> None:
    said_by_name = {"max_new_tokens", "stop_token_ids", "ignore_eos", "seed"}
    explained = set(re.findall(r"`(\w+)`", Request.__doc__ or ""))
    assert explained | said_by_name >= Options.__annotations__.keys()


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(TypeError, match="temperature"):
        generate(TARGET, [1], temperature=1.0)  # type: ignore[call-arg]


def test_a_sequence_begins_with_its_prompt() -> None:
    sequence = Request([1, 2], SamplingParams(0.5), max_new_tokens=7, stop_token_ids=[3]).sequence(TARGET)
    assert (sequence.token_ids, sequence.num_prompt_tokens) == ([1, 2], 2)
    assert (sequence.budget, sequence.max_length) == (7, 9)
    assert sequence.sampler.params == SamplingParams(0.5)
    assert sequence.stop.stop_token_ids == {3}
