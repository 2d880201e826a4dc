"""Plans on a simulated clock: the best choice is the best, and what is measured is what was predicted."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.planning.check import check, errors
from draftwise.planning.plot import draw
from draftwise.planning.profile import profile_for
from draftwise.planning.recommend import PLAIN, Plan, make_plan, verdict
from draftwise.planning.text import Text, write_text
from draftwise.sampling import SamplingParams
from tests.fakes import GuessingDrafter
from tests.planning.simulated import SimulatedClock, SlowModel, clock, silent

__all__ = ["clock"]  # a fixture


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTWISE_CACHE", str(tmp_path / "cache"))


def target(clock: SimulatedClock) -> SlowModel:
    return SlowModel(clock, lambda held, width: 1 + 0.05 * width + 0.0002 * held)


def texts(
    model: SlowModel,
    sampling: SamplingParams | None = None,
    count: int = 2,
    drafters: Sequence[Drafter] = (),
) -> list[Text]:
    return [
        write_text(
            model,
            [1, 2, seed],
            task=f"task {seed % 2}",
            sampling=sampling,
            max_new_tokens=60,
            seed=seed,
            drafters=drafters,
        )
        for seed in range(count)
    ]


def planned(
    clock: SimulatedClock, model: SlowModel, drafters: dict[str, Drafter], written: Sequence[Text]
) -> Plan:
    return make_plan(model, drafters, written, budget=0, max_draft_tokens=8, progress=silent, clock=clock)


def test_a_twin_that_costs_little_is_drafted_with(clock: SimulatedClock) -> None:
    """Every token is accepted, so the longest draft is the best; a stranger with other weights is no use."""
    model = target(clock)
    twin = DraftModel(SlowModel(clock, lambda held, width: 0.1), name="twin")
    stranger = DraftModel(SlowModel(clock, lambda held, width: 0.1, seed=9), name="stranger")
    plan = planned(clock, model, {"twin": twin, "stranger": stranger}, texts(model))
    assert (plan.best.drafter, plan.best.num_draft_tokens) == ("twin", 8)
    assert plan.candidates[0].acceptance.alpha == 1
    assert plan.candidates[0].acceptance.by_position == [1] * 8
    expected = 9 * (1 + 0.05) / (0.8 + 1 + 0.05 * 9)
    assert plan.speedup(plan.best) == pytest.approx(expected, rel=0.1)
    assert plan.margin == pytest.approx(
        plan.best.total.tokens_per_second / plan.ranking[1].total.tokens_per_second - 1
    )
    assert plan.runner_up.drafter == "stranger"
    assert verdict(plan).startswith("Draft with twin, up to 8 tokens: 4")


def test_do_not_speculate(clock: SimulatedClock) -> None:
    model = target(clock)
    wrong = GuessingDrafter(lambda context: [(context[-1] + 1) % 50] * 8)
    plan = planned(clock, model, {"wrong": wrong}, texts(model))
    assert plan.best.drafter == PLAIN
    assert plan.best.num_draft_tokens == 0
    assert verdict(plan) == "Do not speculate: plain decoding of slow is fastest for these prompts."
    assert plan.speedup(plan.best) == 1
    assert plan.runner_up.num_draft_tokens == 1


@pytest.mark.parametrize("sampling", [None, SamplingParams(0.6)])
def test_what_is_measured_is_what_was_predicted(
    clock: SimulatedClock, sampling: SamplingParams | None
) -> None:
    model = target(clock)
    drafters: dict[str, Drafter] = {
        "lookup": PromptLookup(),
        "twin": DraftModel(SlowModel(clock, lambda held, width: 0.3), name="twin"),
    }
    written = texts(model, sampling, count=2 if sampling is None else 30)
    plan = planned(clock, model, drafters, written)
    checked = check(model, drafters, plan, rounds=1, progress=silent)
    assert {(one.choice.drafter, one.task) for one in checked} == {
        (drafter, task) for drafter in drafters for task in ("task 0", "task 1")
    }
    typical, largest = errors(checked)
    assert largest < (0.01 if sampling is None else 0.1)
    assert typical <= largest
    if sampling is None:
        for one in checked:
            assert one.predicted.passes == pytest.approx(one.measured.passes)


@pytest.mark.parametrize("slower", [1.0, 2.0])
def test_drafting_as_far_as_pays_is_predicted_from_the_steps_that_wrote_the_texts(
    clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch, slower: float
) -> None:
    """However busy the machine was while they were written."""
    model = target(clock)
    models = [
        model,
        SlowModel(clock, lambda held, width: 0.2),
        SlowModel(clock, lambda held, width: 0.01, seed=9),
    ]
    drafters: dict[str, Drafter] = {
        name: DraftModel(small, name=name)
        for name, small in zip(("twin", "stranger"), models[1:], strict=True)
    }
    profile_for(model, list(drafters.values()), budget=0, progress=silent, clock=clock)
    with monkeypatch.context() as busy:
        for each in models:
            busy.setattr(each, "cost", lambda held, width, cost=each.cost: slower * cost(held, width))
        written = texts(model, drafters=list(drafters.values()))
    plan = planned(clock, model, drafters, written)
    assert plan.auto is not None
    assert (plan.auto.drafter, plan.auto.num_draft_tokens) == ("twin + stranger", "auto")
    assert plan.auto in plan.ranking
    checked = check(model, drafters, plan, rounds=1, progress=silent)
    auto = [one for one in checked if one.choice is plan.auto]
    assert [one.task for one in auto] == ["task 0", "task 1"]
    for one in auto:
        assert one.ratio == pytest.approx(1, rel=0.01)
        assert one.predicted.passes == one.measured.passes
        assert one.predicted.drafted == one.measured.drafted


def test_texts_of_other_drafters_say_nothing_of_auto(clock: SimulatedClock) -> None:
    model = target(clock)
    drafters: dict[str, Drafter] = {"lookup": PromptLookup()}
    profile_for(model, list(drafters.values()), budget=0, progress=silent, clock=clock)
    own, others = texts(model, drafters=list(drafters.values())), texts(model)
    assert planned(clock, model, drafters, own).auto is not None
    assert planned(clock, model, drafters, [own[0], others[1]]).auto is None


def test_the_seconds_of_a_step_are_the_median_of_the_rounds(clock: SimulatedClock) -> None:
    model = target(clock)
    written = texts(model, count=1)
    plan = planned(clock, model, {"lookup": PromptLookup()}, written)
    steady = check(model, {"lookup": PromptLookup()}, plan, rounds=1, progress=silent)
    cost, passes = model.cost, 0

    def sometimes_slow(held: int, width: int) -> float:
        nonlocal passes
        passes += 1
        return cost(held, width) * (5 if passes % 97 == 0 else 1)

    model.cost = sometimes_slow
    noisy = check(model, {"lookup": PromptLookup()}, plan, rounds=5, progress=silent)
    assert [one.speedup for one in noisy] == pytest.approx([one.speedup for one in steady])


def test_of_a_drafter_that_learns_from_text_to_text_the_mean_is_taken(clock: SimulatedClock) -> None:
    """It guesses nothing at first, and later what the target writes."""
    model = target(clock)
    (text,) = texts(model, count=1)
    asked = 0

    def guess(context: Sequence[int]) -> list[int]:
        nonlocal asked
        asked += 1
        begun = len(context) - len(text.prompt_ids)
        return list(text.output_ids[begun : begun + 4]) if asked > 3 * len(text) else []

    drafters: dict[str, Drafter] = {"learner": GuessingDrafter(guess)}
    plan = planned(clock, model, drafters, [text])
    first, *_ = check(model, drafters, plan, rounds=4, progress=silent)
    assert len(text) - 5 < first.measured.tokens < len(text)
    assert len(text) / 2 < first.measured.passes < first.measured.tokens


def test_a_plan_is_drawn(clock: SimulatedClock) -> None:
    model = target(clock)
    drafters: dict[str, Drafter] = {"lookup": PromptLookup()}
    plan = planned(clock, model, drafters, texts(model))
    checked = check(model, drafters, plan, rounds=1, progress=silent)
    speed, acceptance, passes = draw(plan, checked).axes
    for axes in (speed, acceptance, passes):
        assert axes.get_title(loc="left")
        assert axes.get_xlabel()
        assert axes.get_ylabel()
    by_label = {line.get_label(): np.asarray(line.get_xydata()) for line in speed.lines}
    assert list(by_label["lookup"][:, 0]) == list(range(9))
    assert by_label["lookup"][0, 1] == 1
    assert speed.get_ylim()[1] > max(points[:, 1].max() for points in by_label.values())
    assert len(by_label["measured"]) == len({one.choice.num_draft_tokens for one in checked})
    assert [line.get_label() for line in passes.lines] == ["after 64 tokens", "after 512 tokens"]


def test_auto_stands_beyond_the_constant_numbers(clock: SimulatedClock) -> None:
    model = target(clock)
    drafters: dict[str, Drafter] = {"lookup": PromptLookup()}
    profile_for(model, list(drafters.values()), budget=0, progress=silent, clock=clock)
    plan = planned(clock, model, drafters, texts(model, drafters=list(drafters.values())))
    assert plan.auto is not None
    checked = check(model, drafters, plan, rounds=1, progress=silent)
    speed = draw(plan, checked).axes[0]
    by_label = {line.get_label(): np.asarray(line.get_xydata()) for line in speed.lines}
    ((place, speedup),) = by_label["auto"]
    assert (place, speedup) == (10, plan.speedup(plan.auto))
    assert place in by_label["measured"][:, 0]
    assert [tick.get_text() for tick in speed.get_xticklabels()][-1] == "auto"


def test_a_target_with_nothing_to_say_is_decoded_plainly(clock: SimulatedClock) -> None:
    model = target(clock)
    written = [write_text(model, [1, 2], task="short", max_new_tokens=1)]
    plan = planned(clock, model, {"lookup": PromptLookup()}, written)
    assert plan.best == plan.plain
    assert plan.speedup(plan.candidates[0].best) == 1
    assert check(model, {"lookup": PromptLookup()}, plan, rounds=1, progress=silent) == []
    assert verdict(plan).startswith("There is nothing to judge by: slow wrote one token")
