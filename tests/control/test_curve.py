"""Measured seconds by size, where they were not measured, and where noise was."""

import numpy as np
import pytest

from draftwise.control.acceptance import MOST
from draftwise.control.curve import Curve, rising

POINTS = {1: 1.0, 2: 1.0, 4: 1.6, 8: 2.4}


def test_between_points_it_is_linear_and_beyond_them_as_steep_as_before() -> None:
    seconds = Curve(lambda context: POINTS).seconds(100)
    assert (seconds[0], seconds[1], seconds[3], seconds[8]) == (0.0, 1.0, pytest.approx(1.3), 2.4)
    assert seconds[12] == pytest.approx(2.4 + 4 * 0.2)
    assert len(seconds) == MOST + 2


def test_noise_makes_no_size_dearer_than_a_larger_one() -> None:
    seconds = Curve(lambda context: {1: 1.2, 2: 1.0, 4: 1.5, 8: 1.4})
    assert seconds.seconds(0) == sorted(seconds.seconds(0))
    assert seconds.seconds(0)[1] == seconds.seconds(0)[2] == pytest.approx(1.1)


def test_contexts_have_their_own_points() -> None:
    curve = Curve(lambda context: {1: 1 + context / 1000})
    assert curve.seconds(2000)[1] > curve.seconds(100)[1]


def test_seconds_that_rise_stay_as_they_are() -> None:
    seconds = np.array([1.0, 1.0, 1.5, 2.0])
    assert rising(seconds).tolist() == seconds.tolist()
    assert rising(seconds[::-1]).tolist() == [1.5] * 4
