"""What is not a number, a prompt or text is refused where it is given, in one sentence that names it."""

from typing import Any

import numpy as np
import pytest

from draftwise.checks import number, whole_number
from draftwise.control.fixed import Fixed
from draftwise.errors import OptionError, PromptError
from draftwise.models.tabular import TabularModel
from draftwise.prompt import encode_prompt
from draftwise.randomness import Streams
from draftwise.sampling import SamplingParams
from draftwise.sequence import StopConditions


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


@pytest.mark.parametrize("odd", [None, 5, {1, 2}, b"hello", {"role": "user", "content": "x"}, [1.5]])
def test_a_prompt_is_text_token_ids_or_messages(odd: Any) -> None:
    with pytest.raises(PromptError, match="none of text"):
        encode_prompt(TabularModel.random(5), odd)
