"""What adaptive drafting has learnt: the rate of late, what steps cost, and how each drafter stands."""

from draftwise.control.cost import CostModel
from draftwise.control.standing import Standing
from draftwise.control.trials import Trials

_MEMORY = 0.98  # what is left of a step in the rate after each later one
# The rate before there is one, in tokens a plain step, and how many steps it counts for: what is dear to
# begin, as with a draft model that has to read the prompt, waits for what is cheaper to show what it brings.
_HOPED, _PRIOR_STEPS = 1.5, 8


class Learnt:
    """Of a row's text only its standings speak; the rate, the costs and the trials are of all rows."""

    def __init__(self, costs: CostModel) -> None:
        self.costs = costs
        self.trials = Trials(costs.num_drafters)
        self._standings: dict[int, list[Standing]] = {}  # by row, of each drafter
        self._tokens = self._seconds = 0.0  # of the steps of late

    def forget(self, row: int) -> None:
        """Another text begins in the row."""
        self._standings.pop(row, None)

    def standings(self, row: int) -> list[Standing]:
        """Of each drafter; rows learn apart, as what happens to them at once is alike."""
        if row not in self._standings:
            self._standings[row] = [Standing() for _ in range(self.costs.num_drafters)]
        return self._standings[row]

    def count(self, num_tokens: int, seconds: float) -> None:
        """A step took so long, and brought so many tokens."""
        self._tokens = _MEMORY * self._tokens + num_tokens
        self._seconds = _MEMORY * self._seconds + seconds

    def rate(self, plain: float) -> float:
        """λ, in tokens a second, where a plain step takes `plain` seconds."""
        hoped = _HOPED * _PRIOR_STEPS
        return max((self._tokens + hoped) / (self._seconds + _PRIOR_STEPS * plain), 1 / plain)
