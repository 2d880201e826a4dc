"""What is measured on a text is what enumeration and real runs give."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from draftwise.control.base import Limit
from draftwise.decoding import generate
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.none import NoDrafter
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.errors import UnsupportedError
from draftwise.models.base import Tap
from draftwise.models.context import ContextState
from draftwise.models.tabular import TabularModel
from draftwise.planning.acceptance import Acceptance, measure_acceptance
from draftwise.planning.measure import Trace, traces
from draftwise.planning.text import Text, write_text
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler, SamplingParams, adjusted_probs
from draftwise.types import Draft, Step
from tests.fakes import GuessingDrafter, SamplingDrafter
from tests.planning.simulated import SimulatedClock, SlowModel

GREEDY, WARM, HOT = SamplingParams(), SamplingParams(0.7), SamplingParams(1.3, top_k=4)
TARGET = TabularModel.random(6, order=2, seed=1)
SMALL = TabularModel.random(6, order=1, seed=2)


def text(sampling: SamplingParams = GREEDY, max_new_tokens: int = 60, seed: int = 0) -> Text:
    return write_text(TARGET, [1, 2, 3], sampling=sampling, max_new_tokens=max_new_tokens, seed=seed)


def traced(
    drafter: Drafter,
    written: Text,
    samplings: Sequence[SamplingParams],
    max_draft_tokens: int = 16,
    target: TabularModel = TARGET,
) -> list[Trace]:
    return traces(target, {"one": drafter}, written, samplings, max_draft_tokens)["one"]


def overlaps(written: Text, sampling: SamplingParams) -> list[float]:
    """Σ min(p, q) at each position, by its definition."""
    rates = []
    for at in range(len(written)):
        context = [*written.prompt_ids, *written.output_ids[:at]]
        p, q = (adjusted_probs(model.logits_after(context), sampling) for model in (TARGET, SMALL))
        rates.append(sum(min(float(a), float(b)) for a, b in zip(p, q, strict=True)))
    return rates


def test_a_text_is_what_the_target_writes() -> None:
    written = text()
    assert written.output_ids == generate(TARGET, [1, 2, 3], max_new_tokens=60, num_draft_tokens=0).token_ids
    assert written.prompt_ids == (1, 2, 3)


@pytest.mark.parametrize("drafter", [DraftModel(SMALL), SamplingDrafter(SMALL)], ids=["model", "any"])
def test_alpha_is_the_overlap_at_every_temperature(drafter: Drafter) -> None:
    written = text(WARM)
    samplings = [GREEDY, WARM, HOT] if isinstance(drafter, DraftModel) else [WARM]
    for trace in traced(drafter, written, samplings):
        assert trace.rates == pytest.approx(overlaps(written, trace.sampling))
        assert Acceptance.of([trace]).alpha == pytest.approx(np.mean(overlaps(written, trace.sampling)))


def test_a_point_mass_overlaps_by_its_probability() -> None:
    written = text(WARM)
    always = GuessingDrafter(lambda context: [2, 2])
    (trace,) = traced(always, written, [WARM])
    for at in range(len(written)):
        context = [*written.prompt_ids, *written.output_ids[:at]]
        p = adjusted_probs(TARGET.logits_after(context), WARM)
        assert trace.rates[at] == pytest.approx(p[2])
        assert trace.survival[at, 1] == (written.output_ids[at] == 2)
    assert set(trace.lengths) == {2}


def test_nothing_drafted_is_no_rate() -> None:
    (trace,) = traced(NoDrafter(), text(), [GREEDY])
    assert Acceptance.of([trace]) == Acceptance(None, {"": None}, [])
    assert not trace.lengths.any()


def test_survival_is_that_of_block_verification() -> None:
    """A draft that is what was written is kept with q P / p of all of it, given that it was written."""
    written = text(WARM)
    (trace,) = traced(DraftModel(SMALL), written, [WARM], max_draft_tokens=3)
    for at in range(len(written)):
        p_over_q, block, kept = 1.0, 1.0, [1.0]
        for ahead, token_id in enumerate(written.output_ids[at : at + 3], at):
            context = [*written.prompt_ids, *written.output_ids[:ahead]]
            p, q = (adjusted_probs(model.logits_after(context), WARM)[token_id] for model in (TARGET, SMALL))
            p_over_q *= float(p / q)
            block = min(1.0, block * float(p / q))
            kept.append(block / p_over_q)
        beyond = [0.0] * (4 - len(kept))  # of what follows the text nothing is known
        assert trace.survival[at] == pytest.approx([*kept, *beyond])


def test_rates_by_position_are_those_of_block_verification() -> None:
    """Where neither model looks back the first is α of Corollary 3.6, and later ones are above it."""
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    target = TabularModel.from_probs(np.tile(p, (3, 1)))
    small = DraftModel(TabularModel.from_probs(np.tile(q, (3, 1))))
    sampling = SamplingParams(1.0)
    found = [
        trace
        for seed in range(30)
        for trace in traced(
            small,
            write_text(target, [0], sampling=sampling, max_new_tokens=200, seed=seed),
            [sampling],
            3,
            target,
        )
    ]
    acceptance = Acceptance.of(found)
    assert acceptance.alpha == pytest.approx(0.6)
    # How often the first n of a draft are kept, drafts being drawn from q: E[P_n] of 2403.10444.
    survival, blocks = [1.0], {1.0: 1.0}
    for _ in range(3):
        drawn: dict[float, float] = {}
        for block, probability in blocks.items():
            for ratio, likely in zip(p / q, q, strict=True):
                drawn[min(1.0, block * ratio)] = (
                    drawn.get(min(1.0, block * ratio), 0.0) + probability * likely
                )
        blocks = drawn
        survival.append(sum(block * probability for block, probability in blocks.items()))
    rates = [after / before for before, after in pairwise(survival)]
    assert rates[0] == pytest.approx(0.6)
    assert min(rates[1:]) > 0.65
    assert acceptance.by_position == pytest.approx(rates, abs=0.02)
    tokens = np.mean(np.concatenate([trace.survival[:-3] for trace in found]).sum(axis=1))
    assert tokens == pytest.approx(sum(survival), abs=0.03)


def test_acceptance_by_sampling_and_task() -> None:
    written = [
        write_text(TARGET, [1, 2, 3], task=task, sampling=WARM, max_new_tokens=size, seed=size)
        for task, size in (("a", 20), ("b", 30), ("a", 40))
    ]
    greedy, warm = measure_acceptance(TARGET, {"small": DraftModel(SMALL)}, written, [GREEDY, WARM])["small"]
    for acceptance, sampling in ((greedy, GREEDY), (warm, WARM)):
        rates = [overlaps(one, sampling) for one in written]
        assert acceptance.alpha == pytest.approx(np.mean(np.concatenate(rates)))
        assert acceptance.by_task == {
            "a": pytest.approx(np.mean(rates[0] + rates[2])),
            "b": pytest.approx(np.mean(rates[1])),
        }
    assert measure_acceptance(TARGET, {"no": NoDrafter()}, [], [GREEDY]) == {"no": [Acceptance(None, {}, [])]}


def test_a_narrow_or_short_draft_model_is_followed() -> None:
    """Tokens it lacks have probability zero; where the text has outgrown it, it drafts nothing."""
    narrow = TabularModel.random(4, order=1, seed=2, max_length=20)
    written = text()
    (trace,) = traced(DraftModel(narrow), written, [GREEDY], max_draft_tokens=4)
    assert list(trace.lengths) == [4] * 18 + [0] * (len(written) - 18)
    assert np.isnan(trace.rates[18:]).all()
    assert not trace.survival[18:, 1:].any()


def test_a_draft_model_reads_a_text_as_it_drafts() -> None:
    """Token by token: the bits of wider passes may be others."""
    widths: list[int] = []

    def cost(held: int, width: int) -> float:
        widths.append(width)
        return 0.0

    written = text()
    traced(DraftModel(SlowModel(SimulatedClock(), cost)), written, [GREEDY])
    assert widths == [len(written.prompt_ids) - 1, *[1] * len(written)]


def test_prompt_lookup_is_replayed() -> None:
    written = Text("", (5, 1, 2, 3, 4), (5, 1, 2, 3, 0), 5, GREEDY, ())
    (trace,) = traced(PromptLookup(((1, 4),)), written, [GREEDY], max_draft_tokens=6)
    assert list(trace.lengths) == [0, 4, 4, 4, 4]
    assert [list(row).index(0) - 1 for row in trace.survival] == [0, 3, 2, 1, 0]
    assert list(np.isnan(trace.rates)) == [True, False, False, False, False]
    assert list(trace.rates[1:]) == [1, 1, 1, 0]


class TreeDrafter(GuessingDrafter):
    """Two guesses at one position."""

    def draft(self, context: Sequence[int], limit: Limit, sampler: Sampler, randomness: Randomness) -> Draft:
        return Draft((1, 2), parents=(-1, -1))


class ListeningDrafter(GuessingDrafter):
    """Guesses what it has last seen emitted; it draws from that where it is told to."""

    taps = (Tap((0,)),)
    samples = False
    heard = 0

    def observe(self, step: Step) -> None:
        assert step.num_fed == (3 if self.heard == 0 else 1)
        (self.heard,) = step.emitted

    def draft(self, context: Sequence[int], limit: Limit, sampler: Sampler, randomness: Randomness) -> Draft:
        assert self.heard in (0, context[-1])
        return Draft((self.heard,), [np.eye(6)[self.heard]] if self.samples else None)


class Hearable(TabularModel):
    """A table that lets hidden states be asked for."""

    def open(
        self, num_sequences: int, max_length: int, *, width_invariant: bool = True, taps: Sequence[Tap] = ()
    ) -> ContextState:
        return super().open(num_sequences, max_length)


def test_a_drafter_that_listens_hears_the_plain_steps() -> None:
    model = Hearable(TARGET.table)
    drafter = ListeningDrafter(lambda context: [])
    (trace,) = traced(drafter, text(), [GREEDY], target=model)
    written = text().output_ids
    guesses = (0, *written[:-1])
    assert list(trace.survival[:, 1]) == [
        guess == token for guess, token in zip(guesses, written, strict=True)
    ]
    drafter.heard, drafter.samples = 0, True
    with pytest.raises(UnsupportedError, match="samples from the target's hidden states"):
        traced(drafter, text(), [GREEDY], target=model)


def test_drafters_are_traced_side_by_side_as_they_are_alone() -> None:
    written = text(WARM)
    drafters: dict[str, Drafter] = {"small": DraftModel(SMALL), "lookup": PromptLookup(), "none": NoDrafter()}
    together = traces(TARGET, drafters, written, [WARM, HOT])
    for name, drafter in drafters.items():
        for one, alone in zip(together[name], traced(drafter, written, [WARM, HOT]), strict=True):
            assert one.sampling == alone.sampling
            assert np.array_equal(one.rates, alone.rates, equal_nan=True)
            assert np.array_equal(one.survival, alone.survival)
            assert np.array_equal(one.lengths, alone.lengths)


def test_trees_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="drafts trees"):
        traced(TreeDrafter(lambda context: [1]), text(), [GREEDY])
