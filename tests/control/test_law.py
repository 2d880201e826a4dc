"""The joint law of the output is the target's, with the controller on and with one that stops when unsure."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from draftwise.control import trials
from draftwise.control.base import Limit, UpTo
from draftwise.control.cost import CostModel
from draftwise.control.reckoned import Reckoned
from draftwise.decoding import generate
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.growth import DynamicTree, StaticTree
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.drafters.recycling import TokenRecycling
from draftwise.drafters.suffix import Suffix
from draftwise.drafters.tree import TreeDraftModel
from draftwise.models.tabular import TabularModel
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler, SamplingParams
from draftwise.sequence import Sequence as Row
from draftwise.types import Draft, Probs, Step
from tests.enumeration import distance, law_of_generate, law_of_target
from tests.fakes import SamplingDrafter
from tests.sampling.naive import naive

PROMPT = (0, 1, 0)
TARGET = TabularModel.random(3, 2, seed=1)
MODEL = TabularModel.random(3, 2, seed=2)
SAMPLED = SamplingParams(1.0)


@dataclass(frozen=True)
class WhereSure(UpTo):
    """Two tokens at most, each only where the draft model is sure of it before it is drawn."""

    def allows(self, num_drafted: int, confidence: float | None = None, parent: int | None = None) -> bool:
        return super().allows(num_drafted) and (confidence is None or confidence > 0.5)


class Confident:
    def begin(self, row: int, sequence: Row) -> None:
        """Nothing to forget."""

    def limits(self, rows: Sequence[Row]) -> list[WhereSure]:
        return [WhereSure(min(2, row.room)) for row in rows]

    def observe(self, step: Step) -> None:
        """Nothing to learn."""


class DropsWhatItIsUnsureOf(SamplingDrafter):
    """Looks at the probability of the token that it drew, and takes an unlikely one back."""

    def draft(self, context: Sequence[int], limit: Limit, sampler: Sampler, randomness: Randomness) -> Draft:
        draft = super().draft(context, limit, sampler, randomness)
        likely = [
            probs[token_id] > 0.4 for token_id, probs in zip(draft.token_ids, draft.probs or (), strict=True)
        ]
        kept = (*likely, False).index(False)
        return Draft(draft.token_ids[:kept], draft.probs[:kept] if draft.probs else None)


class Silent(SamplingDrafter):
    """Tells nothing of its tokens."""

    def draft(self, context: Sequence[int], limit: Limit, sampler: Sampler, randomness: Randomness) -> Draft:
        token_ids: list[int] = []
        probs: list[Probs] = []
        while limit.allows(len(token_ids)):
            probs.append(self.next_probs([*context, *token_ids], sampler.after(token_ids)))
            token_ids.append(randomness.sample(probs[-1]))
        return Draft(tuple(token_ids), probs)


@pytest.mark.parametrize(
    "drafters",
    [
        [DraftModel(MODEL)],
        [PromptLookup(), DraftModel(MODEL)],
        [DraftModel(TARGET)],
        [TreeDraftModel(TARGET, DynamicTree(6, width=2, depth=2))],
        [TreeDraftModel(TARGET, StaticTree.branching(2, 1), sampled=True)],
        [TokenRecycling(branching=2, learn=False), Suffix(branching=2)],
    ],
    ids=[
        "draft model",
        "lookup and draft model",
        "the target itself",
        "a dynamic tree",
        "a drawn tree",
        "trees of what came before",
    ],
)
def test_law_with_the_controller_on(drafters: list[Drafter]) -> None:
    # The costs are measured by running steps, which is not to be a part of what is enumerated.
    generate(TARGET, PROMPT, drafter=drafters, num_draft_tokens="auto", max_new_tokens=1)
    law = law_of_generate(
        TARGET, PROMPT, 3, drafter=drafters, sampling=SAMPLED, num_draft_tokens="auto", seed=0
    )
    assert distance(law, law_of_target(TARGET, PROMPT, 3, SAMPLED)) < 1e-12


def test_law_under_controls_with_the_controller_on() -> None:
    controls = SamplingParams(1.0, frequency_penalty=0.9, banned=[[1, 1], [0, 2]])
    drafters: list[Drafter] = [PromptLookup(), DraftModel(MODEL)]
    generate(TARGET, PROMPT, drafter=drafters, num_draft_tokens="auto", max_new_tokens=1)
    law = law_of_generate(
        TARGET, PROMPT, 3, drafter=drafters, sampling=controls, num_draft_tokens="auto", seed=0
    )
    expected = law_of_target(TARGET, PROMPT, 3, controls, naive(controls, len(PROMPT)))
    assert distance(law, expected) < 1e-12


def test_law_where_tokens_are_tried_that_do_not_seem_to_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second token of a draft, once there is an allowance for it: with each of its first tokens."""
    costs = CostModel(
        lambda context: {1: 1.0, 2: 1.05, 3: 1.4, 4: 9.0}, [lambda context: {1: 0.0}], constant=True
    )
    monkeypatch.setattr(CostModel, "measured", lambda *models, **options: costs)
    monkeypatch.setattr(trials, "_EXPLORED", 1.0)
    ventured: set[tuple[int, ...]] = set()
    won = Reckoned.won

    def watched(limit: Reckoned, num_drafted: int, num_accepted: int) -> float:
        ventured.add((limit.ventured or 0, num_drafted))
        return won(limit, num_drafted, num_accepted)

    monkeypatch.setattr(Reckoned, "won", watched)
    law = law_of_generate(
        TARGET, PROMPT, 4, drafter=Silent(MODEL), sampling=SAMPLED, num_draft_tokens="auto", seed=0
    )
    assert ventured == {(1, 2)}
    assert distance(law, law_of_target(TARGET, PROMPT, 4, SAMPLED)) < 1e-12


def test_law_where_confidence_ends_a_draft() -> None:
    law = law_of_generate(
        TARGET, PROMPT, 3, drafter=DraftModel(MODEL), sampling=SAMPLED, num_draft_tokens=Confident()
    )
    assert distance(law, law_of_target(TARGET, PROMPT, 3, SAMPLED)) < 1e-12


def test_a_token_dropped_for_its_value_is_seen() -> None:
    law = law_of_generate(
        TARGET, PROMPT, 3, drafter=DropsWhatItIsUnsureOf(MODEL), sampling=SAMPLED, num_draft_tokens=2
    )
    assert distance(law, law_of_target(TARGET, PROMPT, 3, SAMPLED)) > 1e-2
