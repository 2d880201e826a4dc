"""What measured seconds say: of few noisy rounds, and between the measured points."""

import pytest

from draftwise.planning.curves import Timing, at_context, interpolated


def test_a_timing_is_the_median_and_the_quartiles() -> None:
    timing = Timing.of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert timing == Timing(median=3, lower_quartile=2, upper_quartile=4)
    assert timing.spread == pytest.approx(2 / 3)
    assert Timing.of([0.0, 0.0]).spread == 0


def test_between_and_beyond_points() -> None:
    points = {2: 10.0, 4: 20.0, 8: 60.0}
    assert [interpolated(points, at) for at in (1, 2, 3, 4, 6, 8, 10)] == [10, 10, 15, 20, 40, 60, 80]
    assert interpolated({2: 10.0, 4: 8.0}, 3) == 9
    assert interpolated({2: 10.0, 4: 8.0}, 6) == 8
    assert interpolated({5: 1.0}, 9) == 1


def test_what_a_token_of_context_adds_is_told_by_all_sizes() -> None:
    """One width was unlucky after the longer context, where each takes 10 and 1 for each position more."""
    base = {1: 20.0, 2: 21.0, 3: 22.0, 4: 23.0, 5: 24.0, 6: 25.0, 7: 26.0, 8: 27.0}
    curves = {
        context: {size: Timing(*[each + (10 + size) * (context > 0)] * 3) for size, each in base.items()}
        for context in (0, 100)
    }
    assert at_context(curves, 300) == pytest.approx(
        {size: each + 3 * (10 + size) for size, each in base.items()}
    )
    assert at_context(curves, -5) == pytest.approx(base)
    unlucky = dict(curves[100]) | {4: Timing(41.0, 41.0, 41.0)}
    assert at_context({**curves, 100: unlucky}, 0)[4] < 23 + 3
    assert at_context({**curves, 100: unlucky}, 300)[4] < 65 + 4


def test_the_quicker_rounds_count_and_noise_makes_no_width_dearer_than_a_wider_one() -> None:
    seconds = {1: 1.2, 2: 1.0, 4: 1.5, 8: 1.4}
    curves = {0: {width: Timing(1.1 * each, each, 2 * each) for width, each in seconds.items()}}
    assert at_context(curves, 100) == pytest.approx({1: 1.1, 2: 1.1, 4: 1.45, 8: 1.45})
