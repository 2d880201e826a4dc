"""The audit passes what is sound, and catches one fault after another."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from draftwise.auditing.audit import PROMPTS, Audit, Finding, audit
from draftwise.auditing.report import sentences
from draftwise.auditing.samples import MIN_SAMPLES
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.growth import StaticTree
from draftwise.drafters.none import NoDrafter
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.drafters.tree import TreeDraftModel
from draftwise.errors import OptionError
from draftwise.models.context import ContextState
from draftwise.models.tabular import TabularModel
from draftwise.models.torch import TorchModel
from draftwise.randomness import Randomness, RandomStream, Streams
from draftwise.sampling import SamplingParams
from draftwise.types import Draft, Logits, Probs, Verdict
from draftwise.verification import RULES, acceptance_probability, residual
from draftwise.verification.residual import drawn_from
from tests.fakes import SamplingDrafter
from tests.models.tiny import llama, one_thread
from tests.test_joint_law import StoresOtherProbs, without_residual

__all__ = ["one_thread"]
TARGET = TabularModel.random(6, 2, seed=1, scale=1.5, name="tiny")
MODEL = TabularModel.random(6, 2, seed=2)
LOOPS = [(0, 1, 2, 0, 1, 2, 0, 1), (3, 1, 4, 3, 1, 4, 3)]
SAMPLED, LOOKUP = DraftModel(MODEL, "draft"), PromptLookup()


def audited(
    drafter: Drafter = SAMPLED,
    target: TabularModel | TorchModel = TARGET,
    num_samples: int = 600,
    **options: Any,
) -> Audit:
    return audit(target, drafter, LOOPS, num_samples=num_samples, max_new_tokens=24, **options)


@pytest.mark.parametrize(
    "drafter",
    [SAMPLED, LOOKUP, TreeDraftModel(MODEL, StaticTree.branching(2, 2), sampled=True)],
    ids=lambda drafter: drafter.name,
)
@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(1.0),
        SamplingParams(0.7, top_p=0.9, presence_penalty=0.5, repetition_penalty=1.2, logit_bias={2: 0.5}),
    ],
    ids=["temperature", "controls"],
)
def test_sound_pairs_are_exact(drafter: Drafter, sampling: SamplingParams) -> None:
    made = audited(drafter, sampling=sampling)
    assert made.finding is Finding.EXACT
    assert made.noise == made.positions.logits == made.positions.probs == made.positions.total_variation == 0
    assert not made.partings
    assert made.positions.count > 50
    assert made.joint
    assert made.joint.drafted > made.joint.accepted > 100


def accepting_all(
    draft: Draft, target_probs: Sequence[Probs], acceptance: Randomness, recovery: Randomness
) -> Verdict:
    return Verdict(tuple(range(len(draft))), recovery.sample(target_probs[len(draft)]))


def with_swapped_ratio(
    draft: Draft, target_probs: Sequence[Probs], acceptance: Randomness, recovery: Randomness
) -> Verdict:
    """Accepts with probability q / p."""
    for index, token_id in enumerate(draft.token_ids):
        p = target_probs[index]
        q = drawn_from(draft, index, p)
        if not acceptance.accept(acceptance_probability(token_id, q, np.maximum(p, 1e-300))):
            return Verdict(tuple(range(index)), recovery.sample(residual(p, q)))
    return Verdict(tuple(range(len(draft))), recovery.sample(target_probs[len(draft)]))


def never_emitting_the_likeliest(
    draft: Draft, target_probs: Sequence[Probs], acceptance: Randomness, recovery: Randomness
) -> Verdict:
    """Wrong wherever there is a choice; greedy output is what it should be."""
    p = target_probs[0].copy()
    if p.max() < 1:
        p[p.argmax()] = 0
    return Verdict((), recovery.sample(p / p.sum()))


BROKEN = {
    "accepts all": accepting_all,
    "takes no residual": without_residual,
    "q and p swapped": with_swapped_ratio,
    "leaves out the likeliest": never_emitting_the_likeliest,
}


@pytest.mark.parametrize("drafter", [SAMPLED, LOOKUP], ids=lambda drafter: drafter.name)
@pytest.mark.parametrize("rule", BROKEN)
def test_broken_rules_are_faults(rule: str, drafter: Drafter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "auto", BROKEN[rule])
    made = audited(drafter, num_samples=1200)
    assert made.findings["samples"] is Finding.FAULT
    assert made.finding is Finding.FAULT
    assert made.findings["positions"] is Finding.EXACT


def test_recovery_that_takes_the_drafts_noise_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def seeded(seed: int | None) -> Streams:
        drafting, acceptance, recovery = (
            RandomStream(np.random.SeedSequence(number)) for number in (seed, 10**6 + (seed or 0), seed)
        )
        return Streams(drafting, acceptance, recovery)

    monkeypatch.setattr(Streams, "seeded", staticmethod(seeded))
    assert audited(num_samples=2000, num_draft_tokens=1).findings["samples"] is Finding.FAULT


def test_distributions_that_were_not_drawn_from_are_a_fault() -> None:
    sampling = SamplingParams(1.0, top_p=0.6)
    assert audited(SamplingDrafter(MODEL), sampling=sampling).finding is Finding.EXACT
    assert audited(StoresOtherProbs(MODEL), sampling=sampling).findings["samples"] is Finding.FAULT


def test_a_greedy_rule_that_emits_another_token_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "auto", accepting_all)
    made = audited(sampling=SamplingParams())
    assert made.findings["greedy"] is Finding.FAULT
    assert made.joint is None
    assert max(parting.deficit for parting in made.partings) > 0.01
    assert all(parting.deficit >= parting.gap for parting in made.partings)


def test_lenience_is_a_fault_by_intent() -> None:
    made = audited(verification="lenient", lenience=0.2, num_samples=1500)
    assert made.finding is Finding.FAULT
    assert audited(verification="lenient").finding is Finding.EXACT


class Stale(ContextState):
    """Goes back, and still sees the token that was rejected last."""

    def keep_path(self, row: int, length: int, path: Sequence[int]) -> None:
        last = self._slots[row][-1]
        super().keep_path(row, length, path)
        self._slots[row][-1] = last


class StaleModel(TabularModel):
    def open(self, num_sequences: int, max_length: int, **options: Any) -> ContextState:
        return Stale(self, num_sequences, max_length)


class Rounded(ContextState):
    """Logits that depend on the width of the pass in their last digits."""

    def forward(
        self, token_ids: Sequence[Sequence[int]], num_logits: Sequence[int], parents: Any = None
    ) -> Any:
        widths = [len(tokens) for tokens in token_ids]
        made = super().forward(token_ids, num_logits, parents)
        return [self._rounded(logits, width) for logits, width in zip(made, widths, strict=True)]

    def _rounded(self, logits: Logits, width: int) -> Logits:
        rounded: Logits = logits + 1e-6 * np.cos(7.0 * width + np.arange(logits.shape[-1]))
        return rounded


class RoundingModel(TabularModel):
    def open(self, num_sequences: int, max_length: int, **options: Any) -> ContextState:
        return Rounded(self, num_sequences, max_length)


def tied(cls: type[TabularModel], gap: float) -> TabularModel:
    """A model in which, after any text, tokens 1 and 2 are equally likely but for a gap."""
    table = TARGET.table.copy()
    table[..., 2] = table.max(-1) + 1.0
    table[..., 1] = table[..., 2] - gap
    return cls(table, name="tied")


def test_a_cache_that_does_not_go_back_is_a_fault() -> None:
    made = audited(target=StaleModel(TARGET.table))
    assert made.findings["positions"] is Finding.FAULT
    assert made.positions.logits > 0.1


def test_rounding_is_told_from_faults() -> None:
    model = tied(RoundingModel, 1e-7)
    model.width_invariant = False
    made = audited(target=model, num_samples=300)
    assert {part: str(finding) for part, finding in made.findings.items()} == {
        "widths": "rounding",
        "greedy": "rounding",
        "positions": "rounding",
        "samples": "exact",
    }
    assert made.finding is Finding.ROUNDING
    assert 1e-7 < made.noise < 3e-6
    assert made.partings
    assert all(0 < parting.deficit < 1e-5 for parting in made.partings)

    model.width_invariant = True  # an engine that does not keep its promise
    assert audited(target=model, num_samples=20).findings["widths"] is Finding.FAULT


def test_a_gap_that_rounding_cannot_close_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tied(RoundingModel, 1e-3)
    model.width_invariant = False
    assert audited(target=model, num_samples=20).finding is Finding.ROUNDING
    monkeypatch.setitem(RULES, "auto", second_best)
    assert audited(target=model, num_samples=20).findings["greedy"] is Finding.FAULT


def second_best(
    draft: Draft, target_probs: Sequence[Probs], acceptance: Randomness, recovery: Randomness
) -> Verdict:
    p = target_probs[0]
    return Verdict((), 1 if p[2] == 1 else recovery.sample(p))


def test_a_torch_model_differs_by_rounding_alone() -> None:
    model = TorchModel(llama(), name="llama")
    made = audited(LOOKUP, target=model, num_samples=40)
    assert made.finding is not Finding.FAULT
    assert 0 < made.noise < 1e-3
    assert 0 < made.positions.logits <= made.rounding


def test_a_drafter_that_never_guesses_shows_nothing() -> None:
    made = audited(NoDrafter(), num_samples=40)
    assert made.finding is Finding.EXACT
    assert "No token was drafted in them" in "\n".join(sentences(made))


def test_samples_too_few_to_compare_are_said_to_show_nothing() -> None:
    said = "so they say nothing: draw more of them."
    few = audited(num_samples=2 * (MIN_SAMPLES - 1))  # in turns over two prompts
    assert few.joint
    assert few.joint.texts == 0
    assert f"No beginning came {MIN_SAMPLES} times, {said}" in "\n".join(sentences(few))
    assert said not in "\n".join(sentences(audited(num_samples=2 * MIN_SAMPLES)))


def test_reports_name_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = audited(num_samples=40)
    text = "\n".join(sentences(sound))
    assert text.startswith("tiny with drafts by draft, temperature 1\n")
    assert "2 of 2 outputs, 48 tokens in all" in text
    assert text.splitlines()[-1].startswith("verdict    exact:")
    shown = json.loads(json.dumps(sound.as_object()))
    assert shown["verdict"] == "exact"
    assert shown["joint"]["samples"] == 40
    monkeypatch.setitem(RULES, "auto", accepting_all)
    lines = list(sentences(audited(sampling=SamplingParams())))
    assert any("Prompt 1 parts after" in line for line in lines)
    assert lines[-1].startswith("verdict    fault:")


def test_samples_are_drawn_as_long_as_the_time_allows() -> None:
    made = audit(TARGET, SAMPLED, LOOPS, max_new_tokens=4, seconds=0.05)
    assert made.joint
    assert made.joint.samples >= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": 0}, "num_samples is 0"),
        ({"num_draft_tokens": 0}, "num_draft_tokens is 0; give at least 1"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"seed": -1}, "seed is -1; give at least 0"),
        ({"seconds": 0}, "seconds is 0; give a positive finite number"),
        ({"seconds": -1.0}, "seconds is -1.0; give a positive finite number"),
        ({"seconds": float("inf")}, "seconds is inf; give a positive finite number"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        audit(TARGET, SAMPLED, LOOPS, **options)
    with pytest.raises(OptionError, match="prompts is 0"):
        audit(TARGET, SAMPLED, [])


def test_there_are_prompts_that_repeat_themselves() -> None:
    for prompt in PROMPTS:
        words = prompt.split()
        assert len(set(words)) < len(words)
