"""Measured seconds by context length and size, and what they say between the measured points."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from draftwise.control.curve import rising


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one thing done several times: the median and the quartiles."""

    median: float
    lower_quartile: float
    upper_quartile: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Timing":
        lower, median, upper = (float(value) for value in np.quantile(seconds, (0.25, 0.5, 0.75)))
        return cls(median, lower, upper)

    @property
    def spread(self) -> float:
        """The distance of the quartiles over the median: 0 where every round took the same time."""
        return (self.upper_quartile - self.lower_quartile) / self.median if self.median else 0.0


# Seconds by context length (tokens of text before the draft), and then by width or by tokens drafted.
Curves = Mapping[int, Mapping[int, Timing]]


@dataclass(frozen=True, slots=True)
class DraftTimes:
    """Seconds that a drafter takes: to guess n tokens, and to read a token that it has not read yet."""

    draft: Curves
    read: float


def interpolated(points: Mapping[int, float], at: float) -> float:
    """Linear between the points, constant before the first, and after the last as steep as just before it."""
    sizes = sorted(points)
    above = next((index for index, size in enumerate(sizes) if size >= at), len(sizes) - 1)
    if at <= sizes[0] or len(sizes) == 1:
        return points[sizes[0]]
    low, high = sizes[above - 1], sizes[above]
    slope = (points[high] - points[low]) / (high - low)
    # Noise may make a curve fall at its end; it is not to be carried on to nothing.
    return points[high] + (max(slope, 0.0) if at > high else slope) * (at - high)


def at_context(curves: Curves, context_length: int) -> dict[int, float]:
    """Seconds by size (width or tokens drafted) at a context length; before the first measured one as there.

    Lower quartiles: what else the machine does only ever adds to a time, so that of few rounds the quicker
    ones tell more of how times compare than the median does. What each token of context adds is taken to be
    linear in the size, as attention's work is: all sizes together tell it better than each for itself. The
    seconds rise with the size: of widths that are one as fast as the next, noise would make some the best.
    """
    sizes, contexts = sorted(next(iter(curves.values()))), sorted(curves)
    seconds = np.array([[curves[context][size].lower_quartile for size in sizes] for context in contexts])
    typical = seconds.mean(axis=0)
    if len(contexts) > 1:
        growth = np.polyfit(contexts, seconds, 1)[0]
        line = np.polyfit(sizes, growth, min(1, len(sizes) - 1), w=1 / np.maximum(typical, 1e-9))
        beyond = max(context_length, contexts[0]) - np.mean(contexts)
        typical = typical + np.maximum(0.0, np.polyval(line, sizes)) * beyond
    return dict(zip(sizes, rising(typical).tolist(), strict=True))
