"""A measured curve: seconds by size, which follows the clock."""

from collections.abc import Callable, Mapping
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from draftwise.control.acceptance import MOST

# Measured seconds by size (positions of a pass, or tokens drafted), after a context of some tokens.
Points = Callable[[int], Mapping[int, float]]
_CONTEXTS = 128  # context lengths are told apart by this many tokens
_FRESHNESS = 0.05  # the share of the latest step in what the costs are now
_OUTLIER = log(2)


class Curve:
    """Seconds by size: rising, linear between measured points, times a pace that follows the clock.

    `num_rows`: how many of each size pass together.
    """

    def __init__(self, points: Points, num_rows: int = 1) -> None:
        self._points = points
        self._num_rows = num_rows
        self.pace = 1.0  # what sizes take now, over what was measured
        self._measured: dict[int, NDArray[np.float64]] = {}  # by context length
        self._scaled: tuple[int, float, list[float]] = (-1, 0.0, [])

    def seconds(self, context_length: int) -> list[float]:
        """Of the sizes from 0, which takes nothing, to one more than the longest draft."""
        context = context_length // _CONTEXTS
        if self._scaled[:2] != (context, self.pace):
            if context not in self._measured:
                self._measured[context] = self._measure(_CONTEXTS * context + _CONTEXTS // 2)
            self._scaled = context, self.pace, (self._measured[context] * self.pace).tolist()
        return self._scaled[2]

    def _measure(self, context_length: int) -> NDArray[np.float64]:
        points = sorted(self._points(context_length).items())
        measured, their_seconds = np.array(points).T
        sizes = self._num_rows * np.arange(1, MOST + 2)
        # Beyond the last, as steep as the later half of them.
        half = len(points) // 2
        run = measured[-1] - measured[half]
        slope = max(0.0, (their_seconds[-1] - their_seconds[half]) / run) if run else 0.0
        seconds = np.interp(sizes, measured, their_seconds) + slope * np.maximum(0, sizes - measured[-1])
        return np.array([0.0, *rising(seconds)])

    def observe(self, size: int, seconds: float, context_length: int, beside: float = 0.0) -> None:
        """Learn what one size took: a share of the surprise, so that a slow moment changes little.

        `beside`: the part of it that something else was predicted to take.
        """
        predicted = self.seconds(context_length)[size] + beside
        if predicted > 0 and seconds > 0:
            surprise = max(-_OUTLIER, min(_OUTLIER, log(seconds / predicted)))
            self.pace *= exp(_FRESHNESS * surprise)


def rising(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds by size where noise makes no size dearer than a larger one: half-way between the most before
    and the least after.
    """
    most, least = np.maximum.accumulate(seconds), np.minimum.accumulate(seconds[::-1])[::-1]
    halfway: NDArray[np.float64] = (most + least) / 2
    return halfway
