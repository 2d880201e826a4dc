"""The controls next to transformers' own processors, their order, and what is refused."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from draftwise.decoding import generate
from draftwise.drafters.growth import StaticTree
from draftwise.drafters.tree import TreeDraftModel
from draftwise.errors import ModelError, OptionError
from draftwise.models.tabular import TabularModel
from draftwise.sampling import Sampler, SamplingParams
from draftwise.types import Logits, Probs, TokenIds

VOCAB_SIZE = 1000
MODEL = TabularModel(np.zeros(VOCAB_SIZE), eos_token_ids=[3, 5])
PROMPT = [7, 3, 7, 900, 2]

# What a control is called here, and the same of transformers; it would not take every value that we take.
SAME: dict[str, tuple[dict[str, Any], list[LogitsProcessor]]] = {
    "repetition": ({"repetition_penalty": 1.3}, [RepetitionPenaltyLogitsProcessor(1.3)]),
    "repetition wanted": ({"repetition_penalty": 0.4}, [RepetitionPenaltyLogitsProcessor(0.4)]),
    "bias": (
        {"logit_bias": {4: 2.5, 900: -3.0}},
        [SequenceBiasLogitsProcessor([[[4], 2.5], [[900], -3.0]])],
    ),
    "bans": (
        {"banned": [8, [9], [2, 11], [900, 2, 12], [7, 3, 7, 900, 2, 8, 9], [1, 2, 13]]},
        [
            NoBadWordsLogitsProcessor(
                [[8], [9], [2, 11], [900, 2, 12], [7, 3, 7, 900, 2, 8, 9], [1, 2, 13]], eos_token_id=[3, 5]
            )
        ],
    ),
    "no early end": (
        {"min_new_tokens": 3},
        [MinNewTokensLengthLogitsProcessor(len(PROMPT), 3, [3, 5])],
    ),
    "typical": ({"typical_p": 0.7}, [TypicalLogitsWarper(0.7)]),
    "all of them, in order": (
        {
            "logit_bias": {4: 2.5, 7: 1.0},
            "repetition_penalty": 1.2,
            "banned": [8, [2, 11]],
            "min_new_tokens": 2,
            "temperature": 0.7,
            "top_k": 200,
            "top_p": 0.9,
            "min_p": 0.01,
            "typical_p": 0.8,
        },
        [
            SequenceBiasLogitsProcessor([[[4], 2.5], [[7], 1.0]]),
            RepetitionPenaltyLogitsProcessor(1.2),
            NoBadWordsLogitsProcessor([[8], [2, 11]], eos_token_id=[3, 5]),
            MinNewTokensLengthLogitsProcessor(len(PROMPT), 2, [3, 5]),
            TemperatureLogitsWarper(0.7),
            TopKLogitsWarper(200),
            TopPLogitsWarper(0.9),
            MinPLogitsWarper(0.01),
            TypicalLogitsWarper(0.8),
        ],
    ),
}


def probs_of(options: dict[str, Any], logits: Logits, output: list[int]) -> Probs:
    params = SamplingParams(**{"temperature": 1.0, **options})
    return Sampler.start(params, PROMPT, MODEL).after(output).probs(logits)


def probs_of_transformers(processors: list[LogitsProcessor], logits: Logits, output: list[int]) -> Probs:
    scores = LogitsProcessorList(processors)(torch.tensor([PROMPT + output]), torch.tensor(logits)[None])
    probs: Probs = scores[0].softmax(-1).numpy()
    return probs


@pytest.mark.parametrize(("options", "processors"), SAME.values(), ids=SAME)
@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000),
    st.floats(0.1, 8),
    st.lists(st.integers(0, 12), max_size=5),
)
def test_equal_to_transformers(
    options: dict[str, Any], processors: list[LogitsProcessor], seed: int, scale: float, output: list[int]
) -> None:
    logits = np.random.default_rng(seed).normal(scale=scale, size=VOCAB_SIZE)
    expected = probs_of_transformers(processors, logits, output)
    np.testing.assert_allclose(probs_of(options, logits, output), expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("typical_p", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_typical_p_of_a_large_vocabulary(scale: float, typical_p: float) -> None:
    logits = np.random.default_rng(1).normal(scale=scale, size=50_000)
    model = TabularModel(np.zeros(len(logits)))
    params = SamplingParams(1.0, typical_p=typical_p)
    expected = TypicalLogitsWarper(typical_p)(torch.zeros(1, 1), torch.tensor(logits)[None])[0].softmax(-1)
    probs = Sampler.start(params, [0], model).probs(logits)
    np.testing.assert_allclose(probs, expected.numpy(), rtol=1e-9, atol=1e-15)


def test_processors_of_transformers_and_functions() -> None:
    logits = np.random.default_rng(2).normal(size=VOCAB_SIZE).astype(np.float32)
    given_logits = logits.copy()
    mine = probs_of({"repetition_penalty": 1.5, "banned": [4]}, logits, [1, 2])

    def banning(tokens: TokenIds, scores: Logits) -> Logits:
        assert tokens.tolist() == [*PROMPT, 1, 2]
        scores[4] = -np.inf
        return scores

    processors = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(1.5)])
    for chosen in ([*processors, banning], [processors, banning]):
        theirs = probs_of({"processors": chosen}, logits, [1, 2])
        assert theirs.dtype == np.float32
        np.testing.assert_allclose(theirs, mine, rtol=1e-6)
    np.testing.assert_array_equal(logits, given_logits)  # the engine's, which are not to be changed


def test_a_processor_of_transformers_in_a_generation() -> None:
    model = TabularModel.random(4, 2, seed=3)
    sampling = SamplingParams(processors=[NoRepeatNGramLogitsProcessor(2)])
    for num_draft_tokens in (0, 3):
        token_ids = generate(
            model, [0], sampling=sampling, max_new_tokens=8, num_draft_tokens=num_draft_tokens
        ).token_ids
        pairs = list(zip((0, *token_ids), token_ids, strict=False))
        assert len(set(pairs)) == len(pairs)


def test_penalties_of_presence_and_frequency_count_the_output_alone() -> None:
    logits = np.zeros(VOCAB_SIZE)
    sampler = Sampler.start(SamplingParams(1.0, presence_penalty=0.5, frequency_penalty=0.25), PROMPT, MODEL)
    controlled = sampler.after([1, 9]).after([9]).controlled(logits)
    assert {token_id: controlled[token_id] for token_id in np.flatnonzero(controlled)} == {1: -0.75, 9: -1.0}


def test_stop_tokens_are_banned_early_too() -> None:
    sampler = Sampler.start(SamplingParams(min_new_tokens=1), PROMPT, MODEL, [3], [8])
    assert np.isneginf(sampler.controlled(np.zeros(VOCAB_SIZE))).nonzero()[0].tolist() == [3, 8]
    assert np.isfinite(sampler.after([1]).controlled(np.zeros(VOCAB_SIZE))).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0; give a number from 1e-09 to"),
        ({"repetition_penalty": "1"}, "repetition_penalty is '1'; give a number"),
        ({"repetition_penalty": 1e-320}, "repetition_penalty is 1e-320; give a number from 1e-09 to"),
        ({"presence_penalty": np.inf}, "presence_penalty is inf; give a number from"),
        ({"presence_penalty": -1e308}, "presence_penalty is -1e[+]308; give a number from"),
        ({"frequency_penalty": np.nan}, "frequency_penalty is nan; give a number from"),
        ({"typical_p": 0.0}, "typical_p is 0.0; give a number above 0"),
        ({"logit_bias": [1]}, "give a mapping"),
        ({"logit_bias": {"a": 1.0}}, "a token id of logit_bias is 'a'; give a whole number"),
        ({"logit_bias": {1: np.inf}}, "logit_bias of token 1 is inf; give a number from -1e[+]09 to 1e[+]09"),
        ({"logit_bias": {1: np.nan}}, "logit_bias of token 1 is nan; give a number from"),
        ({"logit_bias": {1: 1e308}}, "logit_bias of token 1 is 1e[+]308; give a number from"),
        ({"logit_bias": {1: 10**400}}, "logit_bias of token 1 is too large for a float"),
        ({"logit_bias": {True: 1.0}}, "a token id of logit_bias is True; give a whole number"),
        ({"banned": "word"}, "banned is 'word'; give a list"),
        ({"banned": b"word"}, "banned is b'word'; give a list"),
        ({"banned": [[]]}, "something empty"),
        ({"banned": [""]}, "something empty"),
        ({"banned": [1.5]}, "a token id of banned is 1.5; give a whole number"),
        ({"min_new_tokens": -1}, "min_new_tokens is -1; give at least 0"),
        ({"processors": [3]}, "cannot be called"),
    ],
    ids=str,
)
def test_values_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        SamplingParams(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"logit_bias": {VOCAB_SIZE: 1.0}}, "logit_bias has token id 1000, which is outside"),
        ({"banned": [[1, -1]]}, "banned has token id -1, which is outside"),
        ({"banned": ["word"]}, "no tokenizer to ban 'word' with"),
    ],
    ids=str,
)
def test_what_the_target_lacks_is_refused_before_the_first_token(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        generate(MODEL, PROMPT, sampling=SamplingParams(**options))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_left_to_draw_is_said(temperature: float) -> None:
    everything = SamplingParams(temperature, banned=list(range(VOCAB_SIZE)))
    with pytest.raises(OptionError, match="leave no token that may follow the first 5"):
        generate(MODEL, PROMPT, sampling=everything)


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (lambda tokens, logits: logits[:3], "returned shape"),
        (lambda tokens, logits: "logits", "returned str; let it return logits"),
        (lambda tokens, logits: logits * np.nan, "a processor returned a logit of nan"),
        (lambda tokens, logits: logits + np.inf, "a processor returned a logit of inf"),
    ],
    ids=["shape", "text", "nan", "inf"],
)
def test_what_a_processor_returns_is_checked(
    processor: Callable[[TokenIds, Logits], Logits], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        generate(MODEL, PROMPT, sampling=SamplingParams(processors=[processor]))


def test_a_broken_model_is_not_blamed_on_the_controls() -> None:
    sampler = Sampler.start(SamplingParams(logit_bias={1: 1.0}), PROMPT, MODEL)
    with pytest.raises(ModelError, match="check the model's weights"):
        sampler.probs(np.full(VOCAB_SIZE, np.nan))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "options",
    [
        {"logit_bias": {1: 1e9, 7: -1e9}},
        *({"repetition_penalty": value} for value in (1e-9, 1e9)),
        *({"presence_penalty": value, "frequency_penalty": value} for value in (-1e9, 1e9)),
    ],
    ids=str,
)
def test_the_largest_values_overflow_nothing(options: dict[str, Any], dtype: type) -> None:
    logits: Logits = np.linspace(-1000, 1000, VOCAB_SIZE, dtype=dtype)
    sampler = Sampler.start(SamplingParams(1.0, **options), PROMPT, MODEL).after([1, 2] * 5000)
    with np.errstate(over="raise", invalid="raise"):
        controlled = sampler.controlled(logits)
        assert np.isfinite(controlled).all()
        assert sampler.probs(logits).sum() == pytest.approx(1, abs=1e-5)


def test_functions_do_without_torch() -> None:
    code = """
import sys
from draftwise.decoding import generate
from draftwise.models.tabular import TabularModel
from draftwise.sampling import SamplingParams
sampling = SamplingParams(processors=[lambda tokens, logits: logits], banned=[1], typical_p=0.5)
generate(TabularModel.random(3), [0], sampling=sampling, max_new_tokens=3)
assert not {"torch", "transformers", "llguidance"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_minimum_beyond_the_maximum_is_refused() -> None:
    with pytest.raises(OptionError, match="min_new_tokens is 6 and max_new_tokens 5"):
        generate(MODEL, PROMPT, sampling=SamplingParams(min_new_tokens=6), max_new_tokens=5)


def finite(tokens: TokenIds, logits: Logits) -> Logits:
    """Has no answer beyond an end."""
    assert not {2, 3} & {*tokens[1:].tolist()}
    return logits


@pytest.mark.parametrize("verification", ["matching", "token", "block"])
@pytest.mark.parametrize("sampled", [False, True])
def test_nothing_is_asked_of_what_follows_an_end(sampled: bool, verification: str) -> None:
    """Neither by the target nor by its drafters; a prompt may hold what ends an output."""
    target = TabularModel.random(4, 1, seed=1, eos_token_ids=[3])
    drafter = TreeDraftModel(target, StaticTree.branching(2, 2, 1), sampled=sampled)
    sampling = SamplingParams(1.0, processors=[finite])
    for seed in range(20):
        generation = generate(
            target,
            [3],
            drafter=drafter,
            num_draft_tokens=None,
            sampling=sampling,
            stop_token_ids=[2],
            verification=verification,
            seed=seed,
        )
        assert generation.token_ids[-1] in (2, 3)
