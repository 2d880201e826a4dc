"""A profile is measured once, kept, and measured anew when it says nothing about the model at hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.planning import profile as module
from draftwise.planning.curves import DraftTimes, Timing
from draftwise.planning.profile import (
    Conditions,
    Profile,
    drafter_key,
    profile_file,
    profile_for,
)
from draftwise.planning.timing import WIDER
from tests.planning.simulated import SimulatedClock, SlowModel, clock, silent

__all__ = ["clock"]  # a fixture


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTWISE_CACHE", str(tmp_path / "cache"))


def slow(clock: SimulatedClock, factor: float = 1.0, seed: int = 0) -> SlowModel:
    return SlowModel(clock, lambda held, width: factor * (1 + 0.1 * width + 0.001 * held), seed=seed)


def measured(clock: SimulatedClock, model: SlowModel, *drafters: DraftModel) -> Profile:
    return profile_for(model, drafters, budget=0, progress=silent, clock=clock)


def test_seconds_at_any_context(clock: SimulatedClock) -> None:
    draft_model = DraftModel(slow(clock, 0.1, seed=1), name="small")
    profile = measured(clock, slow(clock), draft_model)
    for context in (64, 300, 512, 2000):
        assert profile.verify_seconds(context)[4] == pytest.approx(1.4 + 0.001 * (context - 1))
    assert profile.verify_seconds(10) == profile.verify_seconds(64)
    seconds = profile.draft_seconds(drafter_key(draft_model), 64)
    assert seconds[2] == pytest.approx(2 * seconds[1], rel=0.01)
    assert seconds[1] == pytest.approx(0.1 * (1.1 + 0.001 * 64), rel=0.05)
    assert profile.spread < 0.05


def test_a_saved_profile_is_reused(clock: SimulatedClock) -> None:
    model = slow(clock)
    first = measured(clock, model)
    model.cost = lambda held, width: 99.0
    assert measured(clock, model) == first
    assert Profile.read(profile_file(first.conditions)) == first
    anew = profile_for(model, budget=0, remeasure=True, progress=silent, clock=clock)
    assert anew.verify_seconds(64)[1] == pytest.approx(99)


@pytest.mark.parametrize("changed", ["machine", "runs_on", "content"])
def test_a_profile_of_other_conditions_is_measured_anew(
    clock: SimulatedClock, changed: str, tmp_path: Path
) -> None:
    file = tmp_path / "profile.json"
    model = slow(clock)
    first = profile_for(model, budget=0, file=file, progress=silent, clock=clock)
    stale = replace(first, conditions=replace(first.conditions, **{changed: "another"}))
    stale.write(file)
    model.cost = lambda held, width: 99.0
    second = profile_for(model, budget=0, file=file, progress=silent, clock=clock)
    assert second.conditions == first.conditions
    assert second.verify_seconds(64)[1] == pytest.approx(99)


def test_other_weights_are_another_content(clock: SimulatedClock) -> None:
    assert Conditions.of(slow(clock)) == Conditions.of(slow(clock))
    assert Conditions.of(slow(clock, seed=1)).content != Conditions.of(slow(clock)).content


def test_models_that_run_otherwise_do_not_share_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    conditions = Conditions.of(slow(SimulatedClock()))
    monkeypatch.setattr(module, "processor", lambda: "another processor")
    assert profile_file(Conditions.of(slow(SimulatedClock()))) != profile_file(conditions)
    assert profile_file(replace(conditions, runs_on="onnxruntime 9, 7 threads")) != profile_file(conditions)


def test_a_drafter_is_added_to_a_saved_profile(clock: SimulatedClock) -> None:
    target, small = slow(clock), DraftModel(slow(clock, 0.1, seed=1), name="small")
    alone = measured(clock, target)
    target.cost = lambda held, width: 99.0
    both = measured(clock, target, small)
    assert both.verify == alone.verify
    assert list(both.drafters) == [drafter_key(small)]
    retrained = DraftModel(slow(clock, 0.2, seed=2), name="small")
    assert len(measured(clock, target, retrained).drafters) == 2
    assert drafter_key(PromptLookup()) == "prompt-lookup"


def test_wider_passes_are_added_to_a_saved_profile_when_asked_for(clock: SimulatedClock) -> None:
    """What one row takes stays what it was: runs with a seed go by it."""
    target = slow(clock)
    alone = measured(clock, target)
    assert not alone.wider
    target.cost = lambda held, width: 5 + width
    both = profile_for(target, wider=True, budget=0, progress=silent, clock=clock)
    assert both == profile_for(target, budget=0, progress=silent, clock=clock)
    assert both.verify_seconds(100) == alone.verify_seconds(100)
    shared = both.shared_seconds(100)
    assert {n: shared[n] for n in alone.verify_seconds(100)} == alone.verify_seconds(100)
    assert {n: shared[n] for n in WIDER} == {n: pytest.approx(5 + n) for n in WIDER}
    target.cost = lambda held, width: 99.0
    assert profile_for(target, wider=True, budget=0, progress=silent, clock=clock) == both


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"conditions": {}, "drafters": {}, "verify": {}}', "\xff"]
)
def test_a_damaged_file_is_measured_anew(clock: SimulatedClock, content: str, tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    file.write_text(content, encoding="latin-1")
    profile = profile_for(slow(clock), budget=0, file=file, progress=silent, clock=clock)
    assert Profile.read(file) == profile


def test_where_nothing_can_be_written_it_is_measured_each_time(
    clock: SimulatedClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a file").touch()
    profile = profile_for(slow(clock), budget=0, file=tmp_path / "a file" / "p", progress=silent, clock=clock)
    assert profile.verify_seconds(64)[1] == pytest.approx(1.163)
    assert "cannot be written" in caplog.text
    assert "DRAFTWISE_CACHE" in caplog.text


def test_spread_is_that_of_the_rounds() -> None:
    steady, noisy = Timing(1, 1, 1), Timing(1, 0.9, 1.2)
    conditions = Conditions("m", "e", "p", "c")
    assert Profile(
        conditions, {64: {1: steady, 2: noisy}}, {"d": DraftTimes({64: {1: noisy}}, 0.0)}
    ).spread == pytest.approx(0.3)
