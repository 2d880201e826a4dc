"""Predicted passes are those of real runs; predicted seconds are sums over them."""

import numpy as np
import pytest

from draftwise.decoding import generate
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.models.tabular import TabularModel
from draftwise.planning.curves import Curves, Timing
from draftwise.planning.measure import Trace, traces
from draftwise.planning.predict import Costs, Prediction, emissions, overhead, predict, visits
from draftwise.planning.text import Text, write_text
from draftwise.sampling import SamplingParams
from draftwise.theory import measured_speedup, speedup
from draftwise.types import Seconds, Step
from tests.fakes import GuessingDrafter

GREEDY, WARM = SamplingParams(), SamplingParams(0.8)


def linear(base: float, slope: float, by_context: float = 0.0) -> Curves:
    return {
        context: {
            size: Timing(*[base + slope * size + by_context * context] * 3) for size in (1, 2, 4, 8, 17)
        }
        for context in (1, 1001)
    }


FREE = Costs(linear(1, 0), None, {1: 0.0})


def total(trace: Trace, num_draft_tokens: int, costs: Costs = FREE) -> Prediction:
    return predict(trace, num_draft_tokens, costs.along(trace.text, trace.max_draft_tokens))


DRAFTERS: dict[str, Drafter] = {
    "lookup": PromptLookup(),
    "model": DraftModel(TabularModel.random(5, order=1, seed=4)),
    "guess": GuessingDrafter(lambda context: [context[-1], (context[-2] + 1) % 5, 3]),
}


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("num_draft_tokens", [0, 1, 3, 7])
@pytest.mark.parametrize("eos", [(), (2,)])
def test_greedy_passes_are_known_exactly(name: str, num_draft_tokens: int, eos: tuple[int, ...]) -> None:
    for seed in range(6):
        target = TabularModel.random(5, order=2, seed=seed, eos_token_ids=eos)
        text = write_text(target, [1, 0, 3], max_new_tokens=33)
        ((trace,),) = traces(target, {name: DRAFTERS[name]}, text, [GREEDY]).values()
        found = total(trace, num_draft_tokens)
        run = generate(
            target,
            [1, 0, 3],
            drafter=DRAFTERS[name],
            max_new_tokens=33,
            num_draft_tokens=num_draft_tokens,
        )
        assert run.token_ids == text.output_ids
        assert found.passes == pytest.approx(len(run.steps) - 1)
        assert found.tokens == pytest.approx(sum(len(step.emitted) for step in run.steps[1:]))
        assert found.drafted == pytest.approx(sum(len(step.drafted) for step in run.steps[1:]))
        assert found.seconds == pytest.approx(found.passes)


@pytest.mark.parametrize("name", ["lookup", "model"])
def test_sampled_passes_are_right_on_average(name: str) -> None:
    target, drafter = TabularModel.random(5, order=1, seed=1, scale=2.0), DRAFTERS[name]
    foretold, real = [], []
    for seed in range(150):
        text = write_text(target, [1, 0], sampling=WARM, max_new_tokens=40, seed=seed)
        ((trace,),) = traces(target, {name: drafter}, text, [WARM]).values()
        foretold.append(total(trace, 3).passes)
        run = generate(
            target,
            [1, 0],
            drafter=drafter,
            sampling=WARM,
            max_new_tokens=40,
            num_draft_tokens=3,
            seed=seed + 999,
        )
        real.append(len(run.steps) - 1)
    error = np.std(real) / np.sqrt(len(real)) + np.std(foretold) / np.sqrt(len(foretold))
    assert np.mean(foretold) == pytest.approx(np.mean(real), abs=3 * error)
    assert error < 0.03 * np.mean(real)


def independent(rate: float, size: int, max_draft_tokens: int) -> Trace:
    """A trace whose draft tokens are each accepted with the same probability."""
    text = Text("", (0,), (0,) * size, size, GREEDY, ())
    survival = np.tile(rate ** np.arange(max_draft_tokens + 1), (size, 1))
    return Trace(text, GREEDY, np.full(size, rate), np.full(size, max_draft_tokens), survival)


@pytest.mark.parametrize(("rate", "num_draft_tokens"), [(0.8, 4), (0.5, 2), (0.0, 3), (0.9, 0)])
def test_independent_acceptance_gives_the_closed_forms(rate: float, num_draft_tokens: int) -> None:
    trace = independent(rate, 4000, 8)
    costs = Costs(linear(9, 1), linear(0, 0.5), {1: 0.0})
    plain, found = total(trace, 0, costs), total(trace, num_draft_tokens, costs)
    expected = measured_speedup(rate, num_draft_tokens, lambda n: 9 + n, lambda n: 0.5 * n)
    assert found.speedup(plain) == pytest.approx(expected, rel=0.002)
    paper = Costs(linear(1, 0), linear(0, 0.05), {1: 0.0})
    if num_draft_tokens:
        assert total(trace, num_draft_tokens, paper).speedup(total(trace, 0)) == pytest.approx(
            speedup(rate, num_draft_tokens, 0.05), rel=0.002
        )
        assert found.memory_accesses(0.0) == pytest.approx(1 / found.tokens_per_pass)
        assert found.operations(0.1) == pytest.approx(
            (1 + num_draft_tokens * 1.1) / found.tokens_per_pass, rel=0.002
        )


def test_costs_follow_context_width_and_tokens_emitted() -> None:
    trace = independent(1.0, 7, 2)
    costs = Costs(linear(10, 1, 0.01), linear(0, 0.5), {1: 0.1, 3: 0.3})
    seconds = costs.along(trace.text, 2)
    assert seconds.verify[4] == pytest.approx([11.05, 12.05, 13.05])
    assert seconds.draft[4] == pytest.approx([0.5, 0.5, 1.0])
    assert seconds.other == pytest.approx([0.1, 0.2, 0.3])
    # Positions 0, 3 and 6 begin a step, the first reads the prompt; at 6 there is room for no draft.
    expected = (10 + 3 + 0.01 * 4 + 1.0 + 0.3) + (10 + 1 + 0.01 * 7 + 0.1)
    assert total(trace, 2, costs).seconds == pytest.approx(expected)
    assert total(trace, 2, costs).tokens == 4


def test_a_drafter_that_is_not_asked_costs_nothing() -> None:
    trace = independent(0.5, 20, 4)
    for draft in (None, linear(5, 5)):
        assert total(trace, 0, Costs(linear(1, 0), draft, {1: 0.0})).seconds == pytest.approx(19)


def test_visits_and_emissions() -> None:
    survival = np.array([[1, 0.5, 0.25]] * 4)
    emitting = emissions(survival, np.array([2, 2, 1, 0]))
    assert emitting.tolist() == [[0.5, 0.25, 0.25], [0.5, 0.25, 0.25], [0.5, 0.5, 0], [1, 0, 0]]
    assert visits(emitting).tolist() == [1, 0.5, 0.5, 0.625]


def test_predictions_add_up() -> None:
    both = Prediction(4, 2, 3, 1.0) + Prediction(6, 3, 7, 4.0)
    assert both == Prediction(10, 5, 10, 5.0)
    assert (both.tokens_per_pass, both.tokens_per_second) == (2, 2)
    nothing = Prediction()
    assert (nothing.tokens_per_pass, nothing.tokens_per_second, nothing.speedup(nothing)) == (1, 0, 1)


def test_overhead_is_the_median_by_tokens_emitted() -> None:
    def step(count: int, other: float) -> Step:
        return Step(0, (), count - 1, (1,) * count, ("",) * count, count, Seconds(other=other))

    steps = (step(1, 99.0), step(1, 1.0), step(1, 3.0), step(1, 2.0), step(3, 5.0))
    text = Text("", (1,), (1,) * 7, 7, GREEDY, steps)
    assert overhead([text]) == {1: 2.0, 3: 5.0}
    assert overhead([]) == {1: 0.0}
