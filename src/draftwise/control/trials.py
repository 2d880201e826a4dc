"""Trials of what does not seem to pay, and what they may cost."""

from collections.abc import Mapping

_EXPLORED = 0.01  # the share of the time that may be lost to trials
_MOST = 4  # plain steps: what the allowance is at most
_PATIENCE = 32  # steps between trials of a drafter, at most


class Trials:
    """An allowance of seconds, into which goes a share of the time and what trials win.

    A drafter whose trials fail is tried ever more seldom.
    """

    def __init__(self, num_drafters: int) -> None:
        self._allowance = 0.0
        self._num_steps = 0
        self._patience = [1] * num_drafters  # steps until a trial, twice as many after each that failed
        self._next = [0] * num_drafters  # the number of a step

    def due(self, losses: Mapping[int, float]) -> int | None:
        """The drafter to try, if it is time to; `losses`: the seconds that a trial of each may lose."""
        due = [drafter for drafter in losses if self._next[drafter] <= self._num_steps]
        drafter = min(due, key=lambda drafter: losses[drafter], default=None)
        return drafter if drafter is not None and self.affords(losses[drafter]) else None

    def affords(self, loss: float) -> bool:
        """Whether a trial may lose so many seconds."""
        return loss <= self._allowance

    def step(self, seconds: float, plain: float) -> None:
        """A step took so long; a plain one would take `plain`."""
        self._num_steps += 1
        self._allowance = min(self._allowance + _EXPLORED * seconds, _MOST * plain)

    def drafted(self, drafter: int, *, failed: bool) -> None:
        """The step that was counted last was a drafter's; `failed`: a trial that brought nothing."""
        self._patience[drafter] = min(2 * self._patience[drafter], _PATIENCE) if failed else 1
        self._next[drafter] = self._num_steps + self._patience[drafter]

    def won(self, seconds: float) -> None:
        """A trial won so many seconds, or lost them."""
        self._allowance += seconds
