import re
from dataclasses import fields
from typing import Any

import pytest

from draftwise.decoding import generate
from draftwise.errors import OptionError
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"logprobs_of": "foo"}, "logprobs_of is 'foo'; give raw or adjusted"),
        ({"ignore_eos": "x"}, "ignore_eos is 'x'; give True or False"),
        ({"verification": []}, "verification is []; give one of auto"),
        ({"seed": "x"}, "seed is 'x'; give a whole number"),
        ({"stop": [""]}, "a stop string is empty"),
        ({"max_new_tokens": True}, "max_new_tokens is True; give a whole number"),
        (
            {"sampling": SamplingParams(min_new_tokens=9), "max_new_tokens": 8},
            "min_new_tokens is 9 and max_new_tokens 8",
        ),
    ],
    ids=str,
)
def test_an_option_is_refused_where_it_is_given(options: dict[str, Any], message: str) -> None:
    """Before there is a target, and whether or not another option makes use of it."""
    with pytest.raises(OptionError, match=re.escape(message)):
        Request([1], **options)


def test_a_stop_token_that_the_target_lacks_is_refused() -> None:
    with pytest.raises(OptionError, match="stop_token_ids has token id 5, which is outside"):
        Request([1], stop_token_ids=[1, 5]).sequence(TARGET)


def test_a_sequence_begins_with_its_prompt() -> None:
    sequence = Request([1, 2], SamplingParams(0.5), max_new_tokens=7, stop_token_ids=[3]).sequence(TARGET)
    assert (sequence.token_ids, sequence.num_prompt_tokens) == ([1, 2], 2)
    assert (sequence.budget, sequence.max_length) == (7, 9)
    assert sequence.sampler.params == SamplingParams(0.5)
    assert sequence.stop.stop_token_ids == {3}
