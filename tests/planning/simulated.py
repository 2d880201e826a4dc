"""A clock that stands still, and models that move it by what a pass of theirs costs."""

from collections.abc import Callable, Sequence

import pytest

from draftwise import loop
from draftwise.models.base import Tap
from draftwise.models.context import ContextState
from draftwise.models.tabular import TabularModel
from draftwise.types import Logits


class SimulatedClock:
    """Seconds that pass only when something moves them."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class SlowModel(TabularModel):
    """A random table whose passes take `cost(tokens held, tokens fed)` seconds of a simulated clock."""

    shortest_pass = 1

    def __init__(
        self,
        clock: SimulatedClock,
        cost: Callable[[int, int], float],
        *,
        max_length: int = 1 << 20,
        seed: int = 0,
    ) -> None:
        super().__init__(TabularModel.random(50, seed=seed).table, name="slow", max_length=max_length)
        self.clock = clock
        self.cost = cost

    def open(
        self, num_sequences: int, max_length: int, *, width_invariant: bool = True, taps: Sequence[Tap] = ()
    ) -> ContextState:
        state = super().open(num_sequences, max_length)
        forward = state.forward

        def slowly(
            token_ids: Sequence[Sequence[int]], num_logits: Sequence[int], parents: object = None
        ) -> list[Logits]:
            for held, fed in zip(state.lengths, token_ids, strict=True):
                self.clock.now += self.cost(held, len(fed)) if fed else 0.0
            return forward(token_ids, num_logits)

        state.forward = slowly  # type: ignore[method-assign]
        return state


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimulatedClock:
    """The clock of the loop, for the test modules that import it."""
    simulated = SimulatedClock()
    monkeypatch.setattr(loop, "perf_counter", simulated)
    return simulated


def silent(stage: str, fraction: float) -> None:
    """No progress to show."""
