"""Costs are timed in turns, on a clock that the models themselves move."""

from collections.abc import Sequence

import pytest

from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.models.base import Tap
from draftwise.models.context import ContextState
from draftwise.models.tabular import TabularModel
from draftwise.planning.timing import (
    DRAFT_LENGTHS,
    MAX_ROUNDS,
    MIN_ROUNDS,
    WIDTHS,
    Timing,
    draft_times,
    interleaved,
    pass_times,
)
from draftwise.types import Logits
from tests.planning.simulated import SimulatedClock, SlowModel, silent


def test_a_timing_is_the_median_and_the_quartiles() -> None:
    timing = Timing.of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert timing == Timing(median=3, lower_quartile=2, upper_quartile=4)
    assert timing.spread == pytest.approx(2 / 3)
    assert Timing.of([0.0, 0.0]).spread == 0


def test_runs_take_turns_and_the_first_round_does_not_count() -> None:
    clock = SimulatedClock()
    order: list[str] = []

    def run(name: str, seconds: float) -> None:
        clock.now += seconds if len(order) >= 2 else 100
        order.append(name)

    timings = interleaved({"a": lambda: run("a", 1), "b": lambda: run("b", 2)}, 1e9, clock)
    assert order == ["a", "b"] * (MAX_ROUNDS + 1)
    assert (timings["a"].median, timings["b"].median) == (1, 2)


def test_a_budget_ends_the_rounds() -> None:
    clock = SimulatedClock()
    fractions: list[float] = []
    for budget, rounds in ((0.0, MIN_ROUNDS), (4.5, 5)):
        count = 0

        def run() -> None:
            nonlocal count
            count += 1
            clock.now += 1

        interleaved({"run": run}, budget, clock, fractions.append)
        assert count == rounds + 1
        assert fractions[-1] == 1


def test_passes_cost_what_the_model_takes() -> None:
    clock = SimulatedClock()
    model = SlowModel(clock, lambda held, width: 1 + 0.1 * width + 0.001 * held)
    curves = pass_times(model, budget=0, clock=clock, progress=silent)
    assert list(curves) == [64, 512]
    for context, points in curves.items():
        assert tuple(points) == WIDTHS
        for width, timing in points.items():
            assert timing.median == pytest.approx(1 + 0.1 * width + 0.001 * context)


@pytest.mark.parametrize("max_length", [3, 20, 70])
def test_a_short_model_is_timed_within_its_length(max_length: int) -> None:
    clock = SimulatedClock()
    model = SlowModel(clock, lambda held, width: width, max_length=max_length)
    curves = pass_times(model, budget=0, clock=clock, progress=silent)
    assert max(context + max(points) for context, points in curves.items()) <= max_length
    assert all(points[width].median == pytest.approx(width) for points in curves.values() for width in points)


def test_a_draft_of_n_tokens_costs_n_passes() -> None:
    clock = SimulatedClock()
    target = TabularModel.random(50)
    drafter = DraftModel(SlowModel(clock, lambda held, width: 1 + 0.1 * width))
    curves = draft_times(drafter, target, budget=0, clock=clock, progress=silent)
    assert list(curves) == [64, 512]
    for points in curves.values():
        assert {length: pytest.approx(1.1 * length) for length in DRAFT_LENGTHS} == {
            length: timing.median for length, timing in points.items()
        }


def test_a_drafter_without_a_model_is_timed_too() -> None:
    clock = SimulatedClock()
    curves = draft_times(PromptLookup(), TabularModel.random(50), budget=0, clock=clock, progress=silent)
    assert all(timing.median == 0 for points in curves.values() for timing in points.values())


class Counting(TabularModel):
    """Knows how many tokens each pass was fed."""

    widths: tuple[int, ...] = ()

    def open(
        self, num_sequences: int, max_length: int, *, width_invariant: bool = True, taps: Sequence[Tap] = ()
    ) -> ContextState:
        assert width_invariant  # a target's passes are what the loop runs
        state = super().open(num_sequences, max_length)
        forward = state.forward

        def counted(token_ids: Sequence[Sequence[int]], num_logits: Sequence[int]) -> list[Logits]:
            self.widths += (sum(map(len, token_ids)),)
            return forward(token_ids, num_logits)

        state.forward = counted  # type: ignore[method-assign, assignment]
        return state


def test_only_one_row_is_fed_at_a_time() -> None:
    model = Counting(TabularModel.random(50).table)
    pass_times(model, budget=0, clock=SimulatedClock(), progress=silent)
    assert model.widths[:2] == (64, 512)
    assert model.widths[2:] == (*WIDTHS, *WIDTHS) * (MIN_ROUNDS + 1)
