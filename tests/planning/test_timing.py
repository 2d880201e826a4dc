"""Costs are timed in turns, on a clock that the models themselves move."""

from collections.abc import Sequence
from itertools import count

import pytest

from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.models.base import Tap
from draftwise.models.context import ContextState
from draftwise.models.tabular import TabularModel
from draftwise.planning.curves import Timing
from draftwise.planning.timing import (
    DRAFT_LENGTHS,
    MAX_ROUNDS,
    MIN_ROUNDS,
    WIDTHS,
    draft_times,
    interleaved,
    pass_times,
)
from draftwise.types import Logits
from tests.planning.simulated import SimulatedClock, SlowModel, clock, silent

__all__ = ["clock"]  # a fixture
FREE = {64: {1: Timing(0, 0, 0)}}  # passes that take nothing


def test_runs_take_turns_and_the_first_round_comes_first(clock: SimulatedClock) -> None:
    order: list[str] = []

    def run(name: str) -> int:
        order.append(name)
        return len(order)

    returned = interleaved({"a": lambda: run("a"), "b": lambda: run("b")}, 1e9, clock)
    assert order == ["a", "b"] * (MAX_ROUNDS + 1)
    assert returned["a"][:3] == [1, 3, 5]
    assert len(returned["b"]) == MAX_ROUNDS + 1


@pytest.mark.parametrize(("budget", "rounds"), [(0.0, MIN_ROUNDS), (6.5, 7)])
def test_a_budget_ends_the_rounds(clock: SimulatedClock, budget: float, rounds: int) -> None:
    fractions: list[float] = []

    def run() -> None:
        clock.now += 1

    assert len(interleaved({"run": run}, budget, clock, fractions.append)["run"]) == 1 + rounds
    assert fractions[-1] == 1


def test_passes_cost_what_the_model_takes(clock: SimulatedClock) -> None:
    model = SlowModel(clock, lambda held, width: 1 + 0.1 * width + 0.001 * held)
    curves = pass_times(model, budget=0, clock=clock, progress=silent)
    assert list(curves) == [64, 512]
    for context, points in curves.items():
        assert tuple(points) == WIDTHS
        for width, timing in points.items():
            assert timing.median == pytest.approx(1 + 0.1 * width + 0.001 * (context - 1))


def test_widths_that_are_padded_to_one_share_their_rounds(clock: SimulatedClock) -> None:
    hurdles = count()
    model = SlowModel(clock, lambda held, width: width + next(hurdles) % 7)
    model.shortest_pass = 3
    for points in pass_times(model, budget=0, clock=clock, progress=silent).values():
        assert points[1] == points[2] == points[3] != points[4]


@pytest.mark.parametrize("max_length", [3, 20, 70])
def test_a_short_model_is_timed_within_its_length(clock: SimulatedClock, max_length: int) -> None:
    model = SlowModel(clock, lambda held, width: width, max_length=max_length)
    curves = pass_times(model, budget=0, clock=clock, progress=silent)
    assert max(context + max(points) for context, points in curves.items()) <= max_length
    assert all(points[width].median == pytest.approx(width) for points in curves.values() for width in points)


def test_a_draft_of_n_tokens_costs_n_passes(clock: SimulatedClock) -> None:
    drafter = DraftModel(SlowModel(clock, lambda held, width: 1 + 0.1 * width, seed=1))
    times = draft_times(drafter, TabularModel.random(50), FREE, budget=0, clock=clock, progress=silent)
    assert list(times.draft) == [64, 512]
    assert times.read == pytest.approx(0.1, rel=0.01)
    for points in times.draft.values():
        assert {length: pytest.approx(1.1 * length) for length in DRAFT_LENGTHS} == {
            length: timing.median for length, timing in points.items()
        }


def test_a_drafter_without_a_model_is_timed_too(clock: SimulatedClock) -> None:
    target = TabularModel.random(50)
    times = draft_times(PromptLookup(), target, FREE, budget=0, clock=clock, progress=silent)
    assert all(timing.median == 0 for points in times.draft.values() for timing in points.values())
    assert times.read == 0


def test_drafts_are_given_at_the_pace_of_the_passes_that_they_go_with(clock: SimulatedClock) -> None:
    """The machine is half as fast when drafts are timed, and now and then the target is held up."""
    pace, every = 1.0, count()

    def passes(held: int, width: int) -> float:
        return pace * (1 + 0.1 * width + 0.001 * held) * (3 if pace > 1 and next(every) % 9 == 0 else 1)

    target = SlowModel(clock, passes)
    drafter = DraftModel(SlowModel(clock, lambda held, width: pace * (0.5 if width < 9 else width), seed=1))
    verify = pass_times(target, budget=0, clock=clock, progress=silent)
    pace = 2.0
    times = draft_times(drafter, target, verify, budget=0, clock=clock, progress=silent)
    assert times.read == pytest.approx(1, rel=0.01)
    for points in times.draft.values():
        for length, timing in points.items():
            assert timing.median == pytest.approx(0.5 * length, rel=0.01)


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
