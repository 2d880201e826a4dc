"""Trees in the loop: the law of the output, the record of each step, and what the cache keeps."""

from collections.abc import Sequence

import numpy as np
import pytest

from draftwise import decoding
from draftwise.control.base import Limit
from draftwise.control.fixed import Fixed
from draftwise.decoding import generate
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.growth import DynamicTree, StaticTree
from draftwise.drafters.tree import TreeDraftModel
from draftwise.errors import UnsupportedError
from draftwise.loop import step
from draftwise.models.tabular import TabularModel
from draftwise.randomness import Randomness, Streams
from draftwise.sampling import Sampler, SamplingParams
from draftwise.sequence import StopConditions
from draftwise.types import Draft, FinishReason, Origin, Seconds, Step
from tests.enumeration import distance, law_of_generate, law_of_steps, law_of_target
from tests.fakes import PieceTokenizer, RowDrafter
from tests.verification.lazily import Setting

PROMPT = (0, 1)
GREEDY, SAMPLED = SamplingParams(), SamplingParams(1.0)
TARGET = TabularModel.random(3, 2, seed=1)
OTHER = TabularModel.random(3, 2, seed=2)


class DrawnTree(RowDrafter):
    """Draws a tree of a given shape from a tabular model, siblings with replacement or without."""

    def __init__(self, model: TabularModel, parents: Sequence[int], replacement: bool) -> None:
        self.model, self.parents, self.replacement = model, tuple(parents), replacement
        self.default_num_draft_tokens = len(parents)

    def draft(self, context: Sequence[int], limit: Limit, sampler: Sampler, randomness: Randomness) -> Draft:
        allowed = next((n for n in range(len(self.parents)) if not limit.allows(n)), len(self.parents))
        setting = Setting(
            self.model, self.model, self.parents[:allowed], self.replacement, tuple(context), sampler.params
        )
        lazy = setting.draft(randomness)
        assert lazy.probs is not None
        return Draft(tuple(lazy.token_ids), list(lazy.probs), lazy.parents)


THREE = StaticTree.choices([(0,), (1,), (1, 0)])
DRAFTERS: dict[str, Drafter] = {
    "dynamic": TreeDraftModel(OTHER, DynamicTree(7, width=3, depth=3)),
    "static": TreeDraftModel(OTHER, StaticTree.branching(2, 2)),
    "drawn": TreeDraftModel(OTHER, THREE, sampled=True),
    "drawn from fewer": TreeDraftModel(TabularModel.random(2, 2, seed=4), THREE, sampled=True),
    "drawn from more": TreeDraftModel(TabularModel.random(5, 2, seed=4), THREE, sampled=True),
    "with replacement": DrawnTree(OTHER, (-1, -1, 0), replacement=True),
}
every_drafter = pytest.mark.parametrize("drafter", DRAFTERS.values(), ids=DRAFTERS)


@every_drafter
@pytest.mark.parametrize("verification", ["auto", "recursive", "matching"])
def test_the_law_is_the_targets(drafter: Drafter, verification: str) -> None:
    law = law_of_steps(
        TARGET,
        PROMPT,
        3,
        drafter=drafter,
        num_draft_tokens=None,
        sampling=SAMPLED,
        verification=verification,
    )
    assert distance(law, law_of_target(TARGET, PROMPT, 3, SAMPLED)) < 1e-12


@every_drafter
@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(1.0, top_k=2)], ids=str)
def test_over_several_steps_too(drafter: Drafter, sampling: SamplingParams) -> None:
    """The budget cuts trees, and what one step keeps is what the next stands on."""
    law = law_of_generate(TARGET, PROMPT, 4, drafter=drafter, sampling=sampling, num_draft_tokens=3)
    assert distance(law, law_of_target(TARGET, PROMPT, 4, sampling)) < 1e-12


@every_drafter
def test_greedy_output_is_that_of_plain_decoding(drafter: Drafter) -> None:
    plain = generate(TARGET, PROMPT, max_new_tokens=40)
    result = generate(TARGET, PROMPT, drafter=drafter, num_draft_tokens=None, max_new_tokens=40)
    assert result.token_ids == plain.token_ids
    assert result.target_passes < 40


@every_drafter
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_the_record_of_a_step_is_true(drafter: Drafter, sampling: SamplingParams) -> None:
    result = generate(
        TARGET, PROMPT, drafter=drafter, num_draft_tokens=None, sampling=sampling, max_new_tokens=60, seed=0
    )
    left = 60
    for number, done in enumerate(result.steps):
        parents = done.parents or ()
        assert done.path is not None
        assert len(parents) == len(done.drafted) <= min(drafter.default_num_draft_tokens, left - 1)
        assert done.num_accepted == len(done.path)
        assert done.emitted[:-1] == tuple(done.drafted[index] for index in done.path)
        assert [parents[index] for index in done.path] == [-1, *done.path[:-1]][: len(done.path)]
        assert done.num_fed == len(done.drafted) + (2 if number == 0 else 1)
        left -= len(done.emitted)
    assert left == 0
    accepted = sum(done.num_accepted for done in result.steps)
    assert result.acceptance_rate == accepted / sum(done.num_verified for done in result.steps)


def test_what_counts_as_rejected_in_a_tree() -> None:
    def made(path: tuple[int, ...]) -> Step:
        emitted = (*(5 + index for index in path), 9)
        pieces = ("",) * len(emitted)
        parents = (-1, -1, 0, 0, 2)
        return Step(0, (5, 6, 7, 8, 9), len(path), emitted, pieces, 6, Seconds(), None, parents, path)

    accepted, recovered, bonus = Origin.ACCEPTED, Origin.RECOVERED, Origin.BONUS
    assert (made(()).num_verified, made(()).origins) == (1, (recovered,))
    assert (made((0,)).num_verified, made((0,)).origins) == (2, (accepted, recovered))
    assert (made((1,)).num_verified, made((1,)).origins) == (1, (accepted, bonus))
    assert (made((0, 2)).num_verified, made((0, 2)).origins) == (3, (accepted, accepted, recovered))
    assert (made((0, 3)).num_verified, made((0, 3)).origins) == (2, (accepted, accepted, bonus))


class Guess(RowDrafter):
    """A tree whose second branch is right: it counts up from the last token."""

    def draft(self, context: Sequence[int], limit: Limit, sampler: Sampler, randomness: Randomness) -> Draft:
        right = [context[-1] + n for n in range(1, 5)]
        return Draft((7, right[0], 7, right[1], 6, right[2], right[3]), None, (-1, -1, 1, 1, 0, 3, 5))


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("how", ["eos", "stop string", "budget"])
def test_a_stop_inside_an_accepted_path(at: int, how: str) -> None:
    letters = PieceTokenizer([bytes([letter]) for letter in b"abcdefgh"])
    counting = TabularModel(
        10 * np.eye(8)[(np.arange(8) + 1) % 8],
        tokenizer=letters,
        eos_token_ids=[at + 1] if how == "eos" else [],
    )
    stop = StopConditions(
        at + 1 if how == "budget" else 50,
        counting.eos_token_ids,
        stop_strings=("abcdef"[at + 1],) if how == "stop string" else (),
    )
    row = decoding.Sequence([0], stop, Sampler(GREEDY), Streams.seeded(0), letters)
    cache = counting.open(1, 60)
    (done,) = step(cache, Guess().open(counting, 1, 60), Fixed(9), [row])
    assert done.emitted == tuple(range(1, at + 2))
    assert done.path == (1, 3, 5, 6)
    assert len(done.pieces) == len(done.origins) == at + 1
    assert (
        done.finish_reason
        is {
            "eos": FinishReason.EOS,
            "stop string": FinishReason.STOP_STRING,
            "budget": FinishReason.LENGTH,
        }[how]
    )
    assert cache.lengths == [len(row.token_ids) - 1]
    (logits,) = cache.forward([row.token_ids[-1:]], [1])
    np.testing.assert_array_equal(logits[0], counting.logits_after(row.token_ids))


class Mixed(RowDrafter):
    """Trees for some contexts, chains for others."""

    def open(self, target, num_sequences, max_length):  # type: ignore[no-untyped-def]
        self.states = [
            drafter.open(target, 1, max_length) for drafter in (DRAFTERS["drawn"], DraftModel(OTHER))
        ]
        return self

    def draft(self, context: Sequence[int], limit: Limit, sampler: Sampler, randomness: Randomness) -> Draft:
        state = DRAFTERS["drawn"] if context[-1] else DraftModel(OTHER)
        return state.open(TARGET, 1, 60).propose([context], [limit], [sampler], [randomness])[0]


@pytest.mark.parametrize("drafter", [*DRAFTERS.values(), Mixed()], ids=[*DRAFTERS, "mixed"])
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_rows_together_are_the_same_rows_alone(drafter: Drafter, sampling: SamplingParams) -> None:
    settings = [([1, 2, 0], 0, 5), ([2], 1, 30), ([1, 1, 0, 2, 2, 1], 2, 17), ([0, 0], 3, 1)]

    def run(chosen: Sequence[tuple[list[int], int, int]]) -> list[list[int]]:
        rows = [
            decoding.Sequence(prompt, StopConditions(budget), Sampler(sampling), Streams.seeded(seed), None)
            for prompt, seed, budget in chosen
        ]
        drafting, cache = drafter.open(TARGET, len(rows), 60), TARGET.open(len(rows), 60)
        while not all(row.finish_reason for row in rows):
            step(cache, drafting, Fixed(5), rows)
            assert cache.lengths == [len(row.token_ids) - 1 for row in rows]
        return [row.token_ids for row in rows]

    assert run(settings) == [run([one])[0] for one in settings]


@every_drafter
def test_coupled_output_is_that_of_plain_decoding(drafter: Drafter) -> None:
    def coupled(using: Drafter | None) -> tuple[int, ...]:
        return generate(
            TARGET,
            PROMPT,
            drafter=using,
            num_draft_tokens=None,
            sampling=SAMPLED,
            max_new_tokens=40,
            verification="coupled",
            seed=5,
        ).token_ids

    assert coupled(drafter) == coupled(None)


def test_trees_share_the_noise_of_coupled_verification() -> None:
    """The first sibling is the winner of the race, the second the one that came in next."""

    def rate(model: TabularModel, verification: str) -> float | None:
        drafter = TreeDraftModel(model, StaticTree.branching(2, 1), sampled=True)
        return generate(
            TARGET,
            PROMPT,
            drafter=drafter,
            num_draft_tokens=None,
            sampling=SAMPLED,
            max_new_tokens=300,
            verification=verification,
            seed=1,
        ).acceptance_rate

    assert rate(TARGET, "coupled") == 1
    assert (rate(OTHER, "coupled") or 0) > (rate(OTHER, "matching") or 0) + 0.1


def test_an_engine_without_trees_refuses_before_the_first_token() -> None:
    class Chains(TabularModel):
        scores_trees = False

    with pytest.raises(UnsupportedError, match="chains cannot score trees"):
        generate(
            Chains(TARGET.table, name="chains"), PROMPT, drafter=DRAFTERS["static"], num_draft_tokens=None
        )


def test_a_second_sibling_makes_drafts_longer() -> None:
    """Of the same draft model, as deep."""
    chain = DraftModel(OTHER, num_draft_tokens=2)
    tree = TreeDraftModel(OTHER, StaticTree.branching(2, 2), sampled=True)
    one, two = (
        generate(
            TARGET,
            PROMPT,
            drafter=drafter,
            num_draft_tokens=None,
            sampling=SAMPLED,
            max_new_tokens=600,
            seed=0,
        ).mean_acceptance_length
        for drafter in (chain, tree)
    )
    assert two > one + 0.1
