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


def test_the_quicker_rounds_count_and_noise_makes_no_width_dearer_than_a_wider_one() -> None:
    seconds = {1: 1.2, 2: 1.0, 4: 1.5, 8: 1.4}
    curves = {0: {width: Timing(1.1 * each, each, 2 * each) for width, each in seconds.items()}}
    assert at_context(curves, 100) == pytest.approx({1: 1.1, 2: 1.1, 4: 1.45, 8: 1.45})
