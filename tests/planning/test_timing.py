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
from tests.planning.simulated import SimulatedClock, SlowModel, clock, silent

__all__ = ["clock"]  # a fixture


def test_a_timing_is_the_median_and_the_quartiles() -> None:
    timing = Timing.of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert timing == Timing(median=3, lower_quartile=2, upper_quartile=4)
    assert timing.spread == pytest.approx(2 / 3)
    assert Timing.of([0.0, 0.0]).spread == 0


def test_runs_take_turns_and_the_first_round_does_not_count(clock: SimulatedClock) -> None:
    order: list[str] = []

    def run(name: str) -> int:
        order.append(name)
        return len(order)

    returned = interleaved({"a": lambda: run("a"), "b": lambda: run("b")}, 1e9, clock)
    assert order == ["a", "b"] * (MAX_ROUNDS + 1)
    assert returned["a"][:2] == [3, 5]
    assert len(returned["b"]) == MAX_ROUNDS


@pytest.mark.parametrize(("budget", "rounds"), [(0.0, MIN_ROUNDS), (6.5, 7)])
def test_a_budget_ends_the_rounds(clock: SimulatedClock, budget: float, rounds: int) -> None:
    fractions: list[float] = []

    def run() -> None:
        clock.now += 1

    assert len(interleaved({"run": run}, budget, clock, fractions.append)["run"]) == rounds
    assert fractions[-1] == 1


def test_passes_cost_what_the_model_takes(clock: SimulatedClock) -> None:
    model = SlowModel(clock, lambda held, width: 1 + 0.1 * width + 0.001 * held)
    curves = pass_times(model, budget=0, clock=clock, progress=silent)
    assert list(curves) == [64, 512]
    for context, points in curves.items():
        assert tuple(points) == WIDTHS
        for width, timing in points.items():
            assert timing.median == pytest.approx(1 + 0.1 * width + 0.001 * (context - 1))


@pytest.mark.parametrize("max_length", [3, 20, 70])
def test_a_short_model_is_timed_within_its_length(clock: SimulatedClock, max_length: int) -> None:
    model = SlowModel(clock, lambda held, width: width, max_length=max_length)
    curves = pass_times(model, budget=0, clock=clock, progress=silent)
    assert max(context + max(points) for context, points in curves.items()) <= max_length
    assert all(points[width].median == pytest.approx(width) for points in curves.values() for width in points)


def test_a_draft_of_n_tokens_costs_n_passes(clock: SimulatedClock) -> None:
    target = TabularModel.random(50)
    drafter = DraftModel(SlowModel(clock, lambda held, width: 1 + 0.1 * width, seed=1))
    curves = draft_times(drafter, target, budget=0, clock=clock, progress=silent)
    assert list(curves) == [64, 512]
    for points in curves.values():
        assert {length: pytest.approx(1.1 * length) for length in DRAFT_LENGTHS} == {
            length: timing.median for length, timing in points.items()
        }


def test_a_drafter_without_a_model_is_timed_too(clock: SimulatedClock) -> None:
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

        def counted(
            token_ids: Sequence[Sequence[int]], num_logits: Sequence[int], parents: object = None
        ) -> list[Logits]:
            self.widths += (sum(map(len, token_ids)),)
            assert num_logits == [self.widths[-1]] or self.widths[-1] in (63, 511)
            return forward(token_ids, num_logits)

        state.forward = counted  # type: ignore[method-assign]
        return state


def test_steps_are_those_of_the_loop(clock: SimulatedClock) -> None:
    """Both contexts are read, the last token alone; then every width is fed after each, round by round."""
    model = Counting(TabularModel.random(50).table)
    pass_times(model, budget=0, clock=clock, progress=silent)
    assert model.widths[:4] == (63, 1, 511, 1)
    assert model.widths[4:] == (*WIDTHS, *WIDTHS) * (MIN_ROUNDS + 1)
