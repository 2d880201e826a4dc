"""The numbers that 2211.17192 prints."""

from math import inf, nan

import numpy as np
import pytest

from draftwise.errors import OptionError
from draftwise.theory import (
    acceptance_rate,
    divergence,
    expected_tokens,
    guaranteed_speedup,
    measured_optimum,
    measured_speedup,
    memory_accesses,
    one_shot_rejection_rate,
    operations,
    optimal_num_draft_tokens,
    oracle_speedup,
    speedup,
    survival,
)

RATES = [0.0, 0.1, 0.5, 0.9, 0.99, 1.0]


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("num_draft_tokens", [0, 1, 5, 50])
def test_expected_tokens_is_equation_1(alpha: float, num_draft_tokens: int) -> None:
    expected = (1 - alpha ** (num_draft_tokens + 1)) / (1 - alpha)
    assert expected_tokens(alpha, num_draft_tokens) == pytest.approx(expected, rel=1e-12)


def test_expected_tokens_at_its_limits() -> None:
    assert expected_tokens(0, 7) == 1
    assert expected_tokens(1, 7) == 8
    assert expected_tokens(1 - 1e-15, 7) == pytest.approx(8)


@pytest.mark.parametrize(
    ("alpha", "num_draft_tokens", "operations_factor", "speed"),
    [
        (0.6, 2, 1.53, 1.96),
        (0.7, 3, 1.58, 2.53),
        (0.8, 2, 1.23, 2.44),
        (0.8, 5, 1.63, 3.69),
        (0.9, 2, 1.11, 2.71),
        (0.9, 10, 1.60, 6.86),
    ],
)
def test_table_1(alpha: float, num_draft_tokens: int, operations_factor: float, speed: float) -> None:
    assert round(operations(alpha, num_draft_tokens), 2) == operations_factor
    assert round(speedup(alpha, num_draft_tokens), 2) == speed


@pytest.mark.parametrize(
    ("cost", "optima"),
    [
        (0.01, [5, 7, 9, 14, 24]),
        (0.02, [4, 6, 8, 11, 19]),
        (0.05, [3, 4, 6, 8, 13]),
        (0.10, [2, 3, 4, 6, 10]),
    ],
)
def test_figure_3(cost: float, optima: list[int]) -> None:
    assert [optimal_num_draft_tokens(alpha, cost) for alpha in (0.5, 0.6, 0.7, 0.8, 0.9)] == optima


@pytest.mark.parametrize(
    ("num_draft_tokens", "alpha", "cost", "printed"),
    [
        (7, 0.75, 0.02, 3.2),
        (7, 0.80, 0.04, 3.3),
        (7, 0.82, 0.11, 2.5),
        (7, 0.62, 0.02, 2.3),
        (5, 0.68, 0.04, 2.4),
        (3, 0.71, 0.11, 2.0),
        (5, 0.65, 0.02, 2.4),
        (5, 0.73, 0.04, 2.6),
        (3, 0.74, 0.11, 2.0),
        (5, 0.53, 0.02, 1.9),
        (3, 0.55, 0.04, 1.8),
        (3, 0.56, 0.11, 1.6),
    ],
)
def test_table_4(num_draft_tokens: int, alpha: float, cost: float, printed: float) -> None:
    """The tolerance is that of the printed α and c, which are rounded."""
    assert speedup(alpha, num_draft_tokens, cost) == pytest.approx(printed, abs=0.08)


@pytest.mark.parametrize("alpha", RATES)
@pytest.mark.parametrize("cost", [0.0, 0.05, 0.3, 0.6, 0.95, 1.5])
def test_corollary_3_9(alpha: float, cost: float) -> None:
    """Drafting pays if and only if α > c, and then at least by (1 + α) / (1 + c)."""
    best = optimal_num_draft_tokens(alpha, cost)
    assert (best > 0) == (alpha > cost)
    if best:
        assert speedup(alpha, best, cost) >= (1 + alpha) / (1 + cost)
        assert all(speedup(alpha, fewer, cost) > 1 for fewer in range(1, best))


def test_optimum_without_a_largest_is_the_limit() -> None:
    assert optimal_num_draft_tokens(1.0, 0.1) == 64
    assert optimal_num_draft_tokens(0.5, 0.0, limit=8) == 8
    assert optimal_num_draft_tokens(0.9, 0.01, limit=0) == 0


def test_without_a_draft_nothing_changes() -> None:
    assert speedup(0.7, 0, 0.3) == operations(0.7, 0, 0.3) == 1


def test_operations_count_the_drafter() -> None:
    assert operations(0.5, 1, operations_cost=0.5) == pytest.approx((0.5 + 2) / 1.5)


@pytest.mark.parametrize(
    ("cost", "ratios"),
    [
        (0.01, {0.5: 1.056, 0.6: 1.072, 0.7: 1.096, 0.8: 1.136, 0.9: 1.226, 0.95: 1.340}),
        (0.02, {0.5: 1.093, 0.7: 1.155, 0.8: 1.213, 0.9: 1.331, 0.95: 1.456}),
        (0.05, {0.5: 1.168, 0.7: 1.269, 0.8: 1.348, 0.9: 1.475, 0.95: 1.554}),
        (0.10, {0.5: 1.247, 0.7: 1.364, 0.8: 1.446, 0.9: 1.534}),
    ],
)
def test_what_an_oracle_for_the_draft_length_would_gain(cost: float, ratios: dict[float, float]) -> None:
    """Up to about 60% over the best constant γ, as section 3.5 says."""
    for alpha, ratio in ratios.items():
        best = speedup(alpha, optimal_num_draft_tokens(alpha, cost), cost)
        assert round(oracle_speedup(alpha, cost) / best, 3) == ratio


def test_oracle_at_its_limits() -> None:
    assert oracle_speedup(0, 0.3) == 1
    assert oracle_speedup(1, 0.25) == 4
    assert oracle_speedup(1, 0) == inf


@pytest.mark.parametrize("sizes", [(4, 4), (3, 5), (5, 3)])
def test_lemma_3_3(sizes: tuple[int, int]) -> None:
    """D_LK by its definition: Σ|p - (p + q) / 2|; a token that one side lacks has probability zero."""
    rng = np.random.default_rng(0)
    p, q = (rng.dirichlet(np.ones(size)) for size in sizes)
    wide_p, wide_q = (np.pad(probs, (0, 5 - len(probs))) for probs in (p, q))
    by_definition = np.abs(wide_p - (wide_p + wide_q) / 2).sum()
    assert divergence(p, q) == pytest.approx(by_definition, abs=1e-12)
    assert divergence(q, p) == divergence(p, q)
    assert acceptance_rate(p, q) == pytest.approx(1 - by_definition, abs=1e-12)


def test_corollary_3_4() -> None:
    half = np.array([0.5, 0.5])
    assert divergence(half, half) == 0
    assert divergence(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 1


@pytest.mark.parametrize("alpha", [-0.1, 1.1, nan])
def test_a_rate_out_of_range_is_refused(alpha: float) -> None:
    for closed_form in (expected_tokens, speedup, operations, optimal_num_draft_tokens, oracle_speedup):
        with pytest.raises(OptionError, match="alpha is"):
            closed_form(alpha, 1)


@pytest.mark.parametrize("number", [-1, inf, nan])
def test_costs_and_lengths_out_of_range_are_refused(number: float) -> None:
    with pytest.raises(OptionError, match="num_draft_tokens is"):
        expected_tokens(0.5, number)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="cost is"):
        speedup(0.5, 1, number)
    with pytest.raises(OptionError, match="operations_cost is"):
        operations(0.5, 1, number)
    with pytest.raises(OptionError, match="cost is"):
        oracle_speedup(0.5, number)
    with pytest.raises(OptionError, match="limit is"):
        optimal_num_draft_tokens(0.5, 0.1, number)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="memory_cost is"):
        memory_accesses(0.5, 1, number)


def test_figure_2() -> None:
    """Each curve starts at 1, ends at γ + 1 and lies below the one without a limit, 1 / (1 - α)."""
    for num_draft_tokens in (1, 3, 5, 7, 10):
        curve = [expected_tokens(alpha / 20, num_draft_tokens) for alpha in range(21)]
        assert curve[0] == 1
        assert curve[-1] == num_draft_tokens + 1
        assert curve == sorted(curve)
        for alpha, tokens in enumerate(curve[1:-1], start=1):
            assert 1 < tokens < oracle_speedup(alpha / 20, 0)
    printed = {1: 1.8, 3: 2.952, 5: 3.689, 7: 4.161, 10: 4.571}  # at α = 0.8
    assert {gamma: round(expected_tokens(0.8, gamma), 3) for gamma in printed} == printed
    assert oracle_speedup(0.8, 0) == pytest.approx(5)


@pytest.mark.parametrize("alpha", [0.5, 0.7, 0.9])
def test_figure_4(alpha: float) -> None:
    """At c = ĉ = 0 more draft tokens buy speed with operations, and speed is what memory is spared."""
    lengths = range(1, 11)
    speeds = [speedup(alpha, gamma) for gamma in lengths]
    counts = [operations(alpha, gamma) for gamma in lengths]
    assert speeds == sorted(speeds)
    assert counts == sorted(counts)
    for gamma, speed, count in zip(lengths, speeds, counts, strict=True):
        assert speed * count == pytest.approx(gamma + 1)
        assert speed * memory_accesses(alpha, gamma) == pytest.approx(1)


def test_bigram_of_section_3_6() -> None:
    assert round(speedup(0.2, 3), 2) == 1.25


def test_corollary_3_9_is_the_speed_of_one_draft_token() -> None:
    assert guaranteed_speedup(0.6, 0.1) == pytest.approx(1.6 / 1.1)


def test_memory_of_the_drafter_counts_when_asked() -> None:
    assert memory_accesses(0.5, 2, memory_cost=0.25) == pytest.approx(1.5 / 1.75)


def test_rates_by_position() -> None:
    assert survival([0.9, 0.5, 0.2], 3) == pytest.approx([1, 0.9, 0.45, 0.09])
    assert survival(0.5, 0) == survival([], 0) == [1]
    assert expected_tokens([0.9, 0.5, 0.2], 2) == pytest.approx(2.35)
    for closed_form in (expected_tokens, operations, memory_accesses, speedup):
        assert closed_form([0.7] * 4, 4) == pytest.approx(closed_form(0.7, 4))
    with pytest.raises(OptionError, match="2 positions"):
        expected_tokens([0.9, 0.5], 3)
    with pytest.raises(OptionError, match="alpha is 1"):
        expected_tokens([0.9, 1.2], 1)


def test_a_measured_curve() -> None:
    """The 1.5B int8 of a machine of two cores: what the paper takes to be free costs most of the gain."""
    widths = {1: 68, 2: 68, 3: 73, 4: 75, 5: 91, 6: 107}
    assert measured_speedup(0.8, 3, widths.__getitem__, lambda length: 16 * length) == pytest.approx(
        2.952 * 68 / (75 + 48)
    )
    assert measured_speedup(0.8, 0, widths.__getitem__, lambda length: 16 * length) == 1
    assert measured_optimum(0.8, widths.__getitem__, lambda length: 0, limit=5) == 3
    assert measured_optimum(0.9, widths.__getitem__, lambda length: 0, limit=5) == 3
    assert measured_optimum(0.1, widths.__getitem__, lambda length: 16 * length, limit=5) == 0
    # With a flat curve it is the paper's.
    assert measured_optimum(0.7, lambda width: 1, lambda length: 0.05 * length) == 6


def test_lenience_of_appendix_a_5() -> None:
    p, q = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.2, 0.6])
    assert acceptance_rate(p, q) == pytest.approx(0.5)
    assert acceptance_rate(p, q, lenience=0.5) == pytest.approx(0.6)
    assert acceptance_rate(p, q, lenience=0.1) == pytest.approx(1)
    for lenience in (0, -0.5, 1.5, nan):
        with pytest.raises(OptionError, match="lenience is"):
            acceptance_rate(p, q, lenience)


@pytest.mark.parametrize(
    ("lenience", "alpha", "printed"), [(1, 0.75, 3.3), (0.3, 0.80, 3.9), (0.1, 0.87, 4.9)]
)
def test_lenient_speeds_of_appendix_a_5(lenience: float, alpha: float, printed: float) -> None:
    """T5-small, greedy, γ = 8, c = 0.015."""
    assert round(speedup(alpha, 8, 0.015), 1) == printed


def test_rejection_sampling_that_tries_once() -> None:
    """Σ p · min q/p, by its definition, and never above α (A.2)."""
    rng = np.random.default_rng(0)
    for sizes in ((4, 4), (3, 5), (4, 4)):
        p, q = (rng.dirichlet(np.ones(size)) for size in sizes)
        ratio = min(q[i] / p[i] for i in range(len(p)))
        assert one_shot_rejection_rate(p, q) == pytest.approx(sum(p) * ratio)
        assert one_shot_rejection_rate(p, q) <= acceptance_rate(p, q)
    assert one_shot_rejection_rate(q, q) == 1
    assert one_shot_rejection_rate(np.array([0.5, 0.5]), np.array([1.0])) == 0
    assert one_shot_rejection_rate(np.array([1.0, 0.0]), np.array([0.3, 0.7])) == pytest.approx(0.3)
