"""Who drafts when several could, and that the others follow."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from draftwise.control.base import UpTo
from draftwise.decoding import generate
from draftwise.drafters.base import DraftState
from draftwise.drafters.draft_lengths import match_confidence
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.none import NoDrafter
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.drafters.recycling import TokenRecycling
from draftwise.drafters.several import Several
from draftwise.errors import TokenizerMismatchError
from draftwise.models.base import LanguageModel
from draftwise.models.tabular import TabularModel
from draftwise.sampling import Sampler, SamplingParams
from draftwise.types import Draft
from tests.drafters.case import assert_same_draft
from tests.drafters.cases import TARGET
from tests.drafters.conformance import drafting
from tests.enumeration import distance, law_of_generate, law_of_target

SAMPLED = SamplingParams(temperature=1.0)
MODEL = DraftModel(TabularModel.random(4, order=2, seed=2))
REPEATING = [0, 1, 2, 0, 1]
NEW = [0, 1, 2, 3]


@dataclass(frozen=True, slots=True)
class Chosen(UpTo):
    """Takes one drafter whatever it knows."""

    index: int | None = None

    def choose(self, confidences: Sequence[float | None]) -> int | None:
        return self.index


def propose(state: DraftState, contexts: Sequence[Sequence[int]], limits: Sequence[UpTo]) -> list[Draft]:
    rows = len(contexts)
    return state.propose(
        contexts, limits, [Sampler(SAMPLED)] * rows, [drafting(seed) for seed in range(rows)]
    )


def test_the_first_with_a_guess_drafts() -> None:
    both = Several([PromptLookup(), MODEL]).open(TARGET, 1, 100)
    (copied,) = propose(both, [REPEATING], [UpTo(2)])
    assert copied == Draft((2, 0))
    (drawn,) = propose(both, [[*REPEATING, 3]], [UpTo(2)])
    assert_same_draft(drawn, propose(MODEL.open(TARGET, 1, 100), [[*REPEATING, 3]], [UpTo(2)])[0])
    assert Several([NoDrafter()]).open(TARGET, 1, 100).propose([NEW], [UpTo(2)], [Sampler(SAMPLED)], []) == [
        Draft()
    ]


def test_one_choice_is_made_among_all_that_are_within() -> None:
    lookup, recycling = PromptLookup(), TokenRecycling()
    assert Several([Several([lookup, recycling]), MODEL]).drafters == (lookup, recycling, MODEL)
    target = TabularModel.random(4, order=2, seed=2)
    nested = generate(target, REPEATING, drafter=Several([lookup, recycling]), max_new_tokens=40, seed=0)
    flat = generate(target, REPEATING, drafter=[lookup, recycling], max_new_tokens=40, seed=0)
    assert nested.token_ids == flat.token_ids == generate(target, REPEATING, max_new_tokens=40).token_ids


def test_each_row_has_its_own() -> None:
    state = Several([PromptLookup(), MODEL]).open(TARGET, 4, 100)
    limits = [Chosen(2, 0), Chosen(2, 1), Chosen(2, None), Chosen(0, 1)]
    copied, drawn, none, refused = propose(state, [REPEATING] * 4, limits)
    assert copied.probs is None
    assert len(copied) == len(drawn) == 2
    assert drawn.probs is not None
    assert not none
    assert not refused


def test_what_it_knows_for_free() -> None:
    assert Several([]).open(TARGET, 1, 100).confidence(0, NEW) == 0
    assert Several([PromptLookup(), NoDrafter()]).open(TARGET, 1, 100).confidence(0, NEW) == 0
    both = Several([PromptLookup(), MODEL]).open(TARGET, 1, 100)
    assert both.confidence(0, NEW) is None
    assert both.confidence(0, [*NEW, 0]) == match_confidence(1)
    assert both.confidence(0, [*NEW, 0, 1]) == match_confidence(2)


def test_joint_law_where_the_drafters_take_turns() -> None:
    prompt = (0, 1, 0)
    law = law_of_generate(
        TARGET,
        prompt,
        3,
        drafter=Several([PromptLookup([(2, 2)]), MODEL]),
        sampling=SAMPLED,
        num_draft_tokens=2,
    )
    assert distance(law, law_of_target(TARGET, prompt, 3, SAMPLED)) < 1e-12


def test_a_drafter_that_cannot_be_opened_closes_the_others() -> None:
    closed = []

    class Closing(NoDrafter):
        def open(self, target: LanguageModel, num_sequences: int, max_length: int) -> "Closing":
            return self

        def close(self) -> None:
            closed.append(self)

    class Refusing(NoDrafter):
        def open(self, target: LanguageModel, num_sequences: int, max_length: int) -> NoDrafter:
            raise TokenizerMismatchError("it cannot draft.")

    with pytest.raises(TokenizerMismatchError):
        Several([Closing(), Refusing()]).open(TARGET, 1, 100)
    assert len(closed) == 1
