import tracemalloc
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from draftwise.errors import ModelError, OptionError
from draftwise.sampling import (
    Distributions,
    Sampler,
    SamplingParams,
    adjusted_probs,
    kth_largest,
    nucleus_cutoff,
)
from draftwise.types import Draft, Logits, Probs

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 70) | st.sampled_from([255, 256, 257, 1000, 5000])


def random_logits(size: int, seed: int, scale: float = 3.0) -> Logits:
    return np.random.default_rng(seed).normal(0, scale, size)


def of_probs(*probs: float) -> Logits:
    with np.errstate(divide="ignore"):
        logits: Logits = np.log(np.array(probs))
    return logits


def by_transformers(logits: Logits, sampling: SamplingParams) -> Probs:
    warpers = LogitsProcessorList([TemperatureLogitsWarper(sampling.temperature)])
    if sampling.top_k is not None:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    warpers.append(TopPLogitsWarper(sampling.top_p))
    warpers.append(MinPLogitsWarper(sampling.min_p))
    scores = warpers(torch.zeros(1, 1, dtype=torch.long), torch.from_numpy(logits)[None])
    probs: Probs = scores.softmax(-1)[0].numpy()
    return probs


@given(
    sizes,
    seeds,
    st.floats(0.1, 10),
    st.none() | st.integers(1, 100),
    st.just(1.0) | st.floats(0.01, 1),
    st.just(0.0) | st.floats(0, 1),
)
def test_distributions_are_those_of_transformers(
    size: int, seed: int, temperature: float, top_k: int | None, top_p: float, min_p: float
) -> None:
    """On logits without ties, in float64, where rounding does not move a cutoff."""
    logits = random_logits(size, seed)
    sampling = SamplingParams(temperature, top_k, top_p, min_p)
    expected = by_transformers(logits, sampling)
    np.testing.assert_allclose(adjusted_probs(logits, sampling), expected, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (SamplingParams(), [0, 1, 0, 0, 0]),
        (SamplingParams(1.0), [0.125, 0.375, 0.25, 0.25, 0]),
        (SamplingParams(0.5), [0.0555556, 0.5, 0.2222222, 0.2222222, 0]),
        (SamplingParams(1.0, top_k=1), [0, 1, 0, 0, 0]),
        (SamplingParams(1.0, top_k=2), [0, 3 / 7, 2 / 7, 2 / 7, 0]),
        (SamplingParams(1.0, top_k=99), [0.125, 0.375, 0.25, 0.25, 0]),
        (SamplingParams(1.0, top_p=1e-9), [0, 1, 0, 0, 0]),
        (SamplingParams(1.0, top_p=0.5), [0, 3 / 7, 2 / 7, 2 / 7, 0]),
        (SamplingParams(1.0, top_p=0.9), [0.125, 0.375, 0.25, 0.25, 0]),
        (SamplingParams(1.0, min_p=0.6), [0, 3 / 7, 2 / 7, 2 / 7, 0]),
        (SamplingParams(1.0, min_p=1.0), [0, 1, 0, 0, 0]),
    ],
)
def test_what_each_setting_keeps(sampling: SamplingParams, expected: list[float]) -> None:
    """The two tokens of 0.25 are tied: each filter keeps both or neither."""
    probs = adjusted_probs(of_probs(0.125, 0.375, 0.25, 0.25, 0), sampling)
    assert probs == pytest.approx(expected, abs=1e-6)


def test_each_filter_sees_what_the_one_before_it_left() -> None:
    """0.4 is 0.8 of what top-k left, and half of the whole."""
    logits = of_probs(0.4, 0.1, 0.05, 0.25, 0.2)
    assert np.flatnonzero(adjusted_probs(logits, SamplingParams(1.0, top_k=3, top_p=0.45))).tolist() == [0]
    assert np.flatnonzero(adjusted_probs(logits, SamplingParams(1.0, top_p=0.45))).tolist() == [0, 3]


@given(sizes, seeds, st.integers(1, 40), st.floats(0.01, 1))
def test_with_many_ties_the_tokens_keep_their_symmetry(
    size: int, seed: int, levels: int, top_p: float
) -> None:
    """Tokens with equal logits have equal probabilities, and what is kept is all above a cutoff."""
    logits = np.random.default_rng(seed).integers(0, levels, size).astype(np.float32)
    probs = adjusted_probs(logits, SamplingParams(1.0, top_k=levels, top_p=top_p))
    assert len(set(zip(logits.tolist(), probs.tolist(), strict=True))) == len(set(logits.tolist()))
    assert not (probs[logits < logits[probs > 0].min()] > 0).any()
    assert (probs[logits >= logits[probs > 0].min()] > 0).all()


def weights_of_shape(shape: str, size: int, rng: np.random.Generator) -> Probs:
    """Whole numbers, so that sums are exact in any order."""
    shapes = {
        "flat": lambda: rng.integers(900, 1000, size),
        "equal": lambda: np.full(size, 7),
        "ties": lambda: rng.integers(0, 4, size),
        "steep": lambda: np.exp2(rng.integers(0, 40, size)),
        "one in front": lambda: np.where(np.arange(size) == size // 2, 2**40, rng.integers(0, 9, size)),
        "long tail": lambda: 2**20 // (1 + rng.permutation(size)),
        "mostly zero": lambda: rng.integers(0, 9, size) * (rng.random(size) < 0.05),
    }
    weights: Probs = np.asarray(shapes[shape](), np.float64)
    weights[rng.integers(size)] += 1
    return weights


@given(
    st.sampled_from(["flat", "equal", "ties", "steep", "one in front", "long tail", "mostly zero"]),
    sizes,
    seeds,
    st.floats(0.001, 0.999) | st.sampled_from([1e-320, 0.25, 0.5, 0.75, 1 - 2**-53]),
)
def test_nucleus_is_that_of_a_full_sort(shape: str, size: int, seed: int, top_p: float) -> None:
    weights = weights_of_shape(shape, size, np.random.default_rng(seed))
    largest_first = np.sort(weights)[::-1]
    enough = np.cumsum(largest_first) >= top_p * weights.sum()
    assert nucleus_cutoff(weights, top_p) == largest_first[enough.argmax()]


def test_a_nucleus_that_holds_just_enough_is_not_enlarged() -> None:
    """With a total that is a power of two, `top_p` can be the exact share of the largest weights."""
    weights = np.random.default_rng(0).permutation(1000).astype(np.float64)
    weights[0] += 2.0**30 - weights.sum()
    largest_first = np.sort(weights)[::-1]
    for share, last in zip(np.cumsum(largest_first) / 2.0**30, largest_first[:-1], strict=False):
        assert nucleus_cutoff(weights, share) == last


@given(seeds)
def test_a_nucleus_of_almost_everything_is_safe_from_rounding(seed: int) -> None:
    weights = np.random.default_rng(seed).random(3000, np.float32)
    assert (weights >= nucleus_cutoff(weights, 1 - 2**-53)).mean() > 0.99


@given(sizes, seeds, st.integers(1, 5000))
def test_kth_largest_is_that_of_a_full_sort(size: int, seed: int, k: int) -> None:
    values = np.random.default_rng(seed).integers(0, 50, size).astype(np.float32)
    k = min(k, size)
    assert kth_largest(values, k) == np.sort(values)[-k]


def test_top_p_copies_few_tokens_of_a_large_vocabulary() -> None:
    """A language model's distribution: a few likely tokens, and very many unlikely ones."""
    weights = np.exp(random_logits(151_936, 0, scale=2.0).astype(np.float32) - 24)
    weights[:100] = np.geomspace(1, 0.01, 100)
    tracemalloc.start()
    cutoff = nucleus_cutoff(weights, 0.95)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 10 < (weights >= cutoff).sum() < 100
    assert peak < weights.nbytes / 2  # a mask of one byte a token, and little else


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("temperature", "top_p"), list(product([1e-300, 1e-38, 1e-8, 1e4, 1e38, 1e300], [1.0, 0.9]))
)
def test_extreme_temperatures(temperature: float, top_p: float, dtype: type[np.floating]) -> None:
    largest = np.finfo(dtype).max
    logits = np.array([3.0, 2.0, -np.inf, -largest, 3.0 - 1e-3], dtype)
    probs = adjusted_probs(logits, SamplingParams(temperature, top_p=top_p))
    assert probs.dtype == dtype
    assert probs.sum() == pytest.approx(1)
    assert probs[2] == 0
    if temperature < 1:
        assert probs.tolist() == [1, 0, 0, 0, 0]
    else:
        assert probs[[1, 4]] == pytest.approx([probs[0]] * 2, rel=1e-3)


@pytest.mark.filterwarnings("error")
@given(seeds, st.floats(0, 1e10), st.floats(0.01, 1), st.floats(0, 1))
def test_any_setting_gives_a_distribution(seed: int, temperature: float, top_p: float, min_p: float) -> None:
    logits = random_logits(300, seed, scale=30).astype(np.float32)
    before = logits.copy()
    probs = adjusted_probs(logits, SamplingParams(temperature, 20, top_p, min_p))
    assert probs.dtype == np.float32
    assert probs.sum() == pytest.approx(1, abs=1e-5)
    assert probs.min() >= 0
    assert probs[logits.argmax()] == probs.max()
    np.testing.assert_array_equal(logits, before)


def test_greedy_takes_the_first_of_tied_tokens() -> None:
    assert adjusted_probs(np.array([1.0, 3.0, 3.0]), SamplingParams()).tolist() == [0, 1, 0]


@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(1.0, top_p=0.9)])
@pytest.mark.parametrize("logits", [[0.0, np.nan], [np.nan, 0.0], [-np.inf, -np.inf], [0.0, np.inf]])
def test_logits_without_a_distribution_are_refused(logits: list[float], sampling: SamplingParams) -> None:
    with pytest.raises(ModelError, match=r"no distribution.*(nan|inf)"):
        adjusted_probs(np.array(logits), sampling)


@pytest.mark.parametrize(
    ("option", "value"),
    [("temperature", value) for value in (-0.1, np.inf, np.nan)]
    + [("top_k", value) for value in (0, -1)]
    + [("top_p", value) for value in (0.0, -0.1, 1.1, np.nan)]
    + [("min_p", value) for value in (-0.1, 1.1, np.nan)],
)
def test_options_out_of_range_are_refused(option: str, value: float) -> None:
    with pytest.raises(OptionError, match=f"^{option} is {value}; give "):
        SamplingParams(**{option: value})  # type: ignore[arg-type]


def test_the_default_is_greedy_and_keeps_every_token() -> None:
    assert SamplingParams() == SamplingParams(0.0, None, 1.0, 0.0)


def test_distributions_are_computed_when_asked_for_and_once() -> None:
    nan = [np.nan, np.nan]
    rows = Distributions(np.array([[1.0, 2.0], nan, [0.0, 0.0]]), Sampler(SamplingParams(1.0)), Draft((0, 1)))
    assert len(rows) == 3
    assert rows[2].tolist() == [0.5, 0.5]
    assert rows[-1] is rows[2]
    assert rows[0].argmax() == 1
    with pytest.raises(ModelError):
        rows[1]
    with pytest.raises(IndexError):
        rows[3]


def test_distributions_are_a_sequence() -> None:
    logits = random_logits(12, 0).reshape(3, 4)
    rows = Distributions(logits, Sampler(SamplingParams(1.0)), Draft((0, 1)))
    np.testing.assert_array_equal(list(rows), [adjusted_probs(row, SamplingParams(1.0)) for row in logits])
    np.testing.assert_array_equal(rows[1:], list(rows)[1:])
