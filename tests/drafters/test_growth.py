"""Which guesses a tree has, by shape and by confidence."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from draftwise.control.base import Limit, UpTo
from draftwise.drafters.growth import DynamicTree, Shape, StaticTree
from draftwise.drafters.tree import TreeDraftModel
from draftwise.errors import DraftError, OptionError, TokenizerMismatchError, UnsupportedError
from draftwise.models.base import Tap
from draftwise.models.context import ContextState
from draftwise.models.tabular import TabularModel
from draftwise.randomness import Streams
from draftwise.sampling import Sampler, SamplingParams, adjusted_probs
from draftwise.types import Draft
from tests.fakes import PieceTokenizer

MODEL = TabularModel.random(5, 4, seed=2)  # depends on more tokens than a tree is deep
TARGET = TabularModel.random(5, 2, seed=1)
CONTEXT = [3, 1, 4]
GREEDY, SAMPLED = SamplingParams(), SamplingParams(1.0)


def grown(
    shape: Shape,
    limit: Limit | int = 100,
    sampling: SamplingParams = SAMPLED,
    model: TabularModel = MODEL,
    sampled: bool = False,
) -> Draft:
    state = TreeDraftModel(model, shape, sampled=sampled).open(TARGET, 1, 50)
    allowed = UpTo(limit) if isinstance(limit, int) else limit
    return state.propose([CONTEXT], [allowed], [Sampler(sampling)], [Streams.seeded(0).drafting])[0]


def paths(draft: Draft) -> list[tuple[int, ...]]:
    """The tokens from the first depth down to each guess."""
    assert draft.parents is not None
    found: list[tuple[int, ...]] = []
    for token_id, parent in zip(draft.token_ids, draft.parents, strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), token_id))
    return found


def next_probs(path: tuple[int, ...]) -> np.ndarray:
    return adjusted_probs(MODEL.logits_after([*CONTEXT, *path]), SAMPLED)


def likelihood(path: tuple[int, ...]) -> float:
    return float(np.prod([next_probs(path[:depth])[path[depth]] for depth in range(len(path))]))


def ranked(path: tuple[int, ...]) -> list[int]:
    return [int(token_id) for token_id in np.argsort(-next_probs(path))]


def test_shapes() -> None:
    assert StaticTree.branching(2, 2).parents == (-1, -1, 0, 0, 1, 1)
    assert StaticTree.branching(3, 1).parents == (-1, -1, -1, 0, 1, 2)
    assert StaticTree.choices([(0,), (0, 0), (1,), (0, 1), (0, 0, 0)]).parents == (-1, 0, -1, 0, 1)
    assert TreeDraftModel(MODEL, StaticTree.branching(2, 2)).default_num_draft_tokens == 6
    assert TreeDraftModel(MODEL, DynamicTree(17)).default_num_draft_tokens == 17


@pytest.mark.parametrize(
    "choices", [[(0, 0), (0,)], [(1,)], [(0,), (0, 1), (0, 0)]], ids=["parent", "sibling", "order"]
)
def test_paths_out_of_order_are_refused(choices: list[tuple[int, ...]]) -> None:
    with pytest.raises(OptionError, match="before its parent or a likelier sibling"):
        StaticTree.choices(choices)


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(DraftError, match="parent 3"):
        StaticTree([-1, 3])
    with pytest.raises(OptionError, match="width is 0"):
        DynamicTree(width=0)
    with pytest.raises(OptionError, match="leaves out guesses for their value"):
        TreeDraftModel(MODEL, DynamicTree(), sampled=True)


# medusa_choices.mc_sim_7b_63 of FasterDecoding/Medusa, a path for each word.
PUBLISHED = (
    "0 00 1 01 2 000 10 02 3 03 4 04 20 05 001 5 06 6 07 010 11 7 08 002 30 09 8 9 100 020 12 003 40 21 004 "
    "005 0000 011 006 030 50 13 007 008 009 60 040 14 70 012 200 31 22 80 050 15 101 021 90 060 0001 16 070"
)


def test_published_choices_are_taken_as_they_are() -> None:
    tree = StaticTree.choices([[int(rank) for rank in word] for word in PUBLISHED.split()])
    assert tree.num_draft_tokens == 63
    assert sum(parent == -1 for parent in tree.parents) == 10


@pytest.mark.parametrize("size", [1, 4, 9, 30])
def test_a_calibrated_tree_is_worth_the_most(size: int) -> None:
    """Of all trees of its size that have guesses in the order of their ranks."""
    accuracies = -np.sort(-np.random.default_rng(size).random((3, 3)) / 2)
    every = [path for depth in range(1, 4) for path in product(range(3), repeat=depth)]

    def worth(path: Sequence[int]) -> float:
        return float(np.prod([accuracies[depth][rank] for depth, rank in enumerate(path)]))

    best = sorted(every, key=worth, reverse=True)[:size]
    parents = StaticTree.calibrated(accuracies.tolist(), size).parents
    assert parents == StaticTree.choices(best).parents
    with pytest.raises(OptionError, match="num_draft_tokens is 0"):
        StaticTree.calibrated(accuracies.tolist(), 0)
    assert len(StaticTree.calibrated(accuracies.tolist(), 1000).parents) == 39


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_static_tree_has_the_likeliest_tokens(sampling: SamplingParams) -> None:
    draft = grown(StaticTree.branching(3, 2), sampling=sampling)
    first = ranked(())[:3]
    assert draft.probs is None
    assert paths(draft) == [
        *[(token_id,) for token_id in first],
        *[(token_id, other) for token_id in first for other in ranked((token_id,))[:2]],
    ]


def test_a_static_tree_need_not_be_listed_by_depth() -> None:
    draft = grown(StaticTree.choices([(0,), (0, 0), (0, 0, 0), (1,)]))
    one, other = ranked(())[:2]
    below = ranked((one,))[0]
    assert paths(draft) == [(one,), (other,), (one, below), (one, below, ranked((one, below))[0])]


@pytest.mark.parametrize("limit", range(7))
def test_the_limit_cuts_a_tree_before_anything_is_drawn(limit: int) -> None:
    for sampled in (False, True):
        whole = grown(StaticTree.branching(2, 2), sampled=sampled)
        cut = grown(StaticTree.branching(2, 2), limit, sampled=sampled)
        assert cut.token_ids == whole.token_ids[:limit]
        assert (cut.parents or ()) == (whole.parents or ())[:limit]


@pytest.mark.parametrize("sampled", [False, True])
def test_there_are_no_more_siblings_than_tokens_that_can_follow(sampled: bool) -> None:
    draft = grown(StaticTree.branching(4, 4), sampling=SamplingParams(1.0, top_k=2), sampled=sampled)
    assert draft.parents == (-1, -1, 0, 0, 1, 1)
    assert len(set(paths(draft))) == 6


def test_a_greedy_row_has_the_likeliest_tokens_even_of_a_drawn_tree() -> None:
    shape = StaticTree.branching(2, 2)
    drawn, likeliest = (grown(shape, sampling=GREEDY, sampled=sampled) for sampled in (True, False))
    assert drawn.probs is None
    assert drawn.token_ids == likeliest.token_ids


@pytest.mark.parametrize("size", [1, 2, 5, 12, 40])
def test_a_dynamic_tree_is_the_likeliest_paths_of_all(size: int) -> None:
    every = [path for depth in range(1, 4) for path in product(range(5), repeat=depth)]
    best = sorted(every, key=likelihood, reverse=True)[:size]
    assert paths(grown(DynamicTree(size, width=25, depth=3))) == best
    assert paths(grown(DynamicTree(size, width=25, depth=3), sampling=GREEDY)) == best
    assert paths(grown(DynamicTree(60, width=25, depth=3), limit=size)) == best


def test_the_width_holds_at_every_depth() -> None:
    found = paths(grown(DynamicTree(100, width=3, depth=3)))
    first = ranked(())[:3]
    second = [(token_id, other) for token_id in first for other in ranked((token_id,))[:3]]
    go_on = sorted(second, key=likelihood, reverse=True)[:3]
    assert go_on != second[:3]
    third = [(*path, token_id) for path in go_on for token_id in ranked(path)[:3]]
    assert sorted(found) == sorted([*[(token_id,) for token_id in first], *second, *third])


class Counting(TabularModel):
    """Counts its passes and what they were fed."""

    def open(
        self, num_sequences: int, max_length: int, *, width_invariant: bool = True, taps: Sequence[Tap] = ()
    ) -> ContextState:
        self.widths: list[int] = []
        state = super().open(num_sequences, max_length)
        forward = state.forward

        def counted(token_ids, *rest):  # type: ignore[no-untyped-def]
            self.widths.append(len(token_ids[0]))
            return forward(token_ids, *rest)

        state.forward = counted  # type: ignore[method-assign]
        return state


def test_a_tree_takes_one_pass_for_each_depth_and_none_for_what_cannot_be_in_it() -> None:
    model = Counting(MODEL.table)
    grown(StaticTree.branching(2, 2, 1), model=model)
    assert model.widths == [3, 2, 6]  # the context, the first depth, the first two
    certain = Counting(np.where(np.arange(5) == 2, 20.0, 0.0))
    grown(DynamicTree(4, width=4, depth=8), model=certain)
    assert len(certain.widths) == 4  # a chain of likely tokens, from which nothing else is worth a pass
    grown(StaticTree.branching(2), limit=0, model=model)
    assert model.widths == []


class Summing(Limit):
    """Takes confidences for those of a guess after its parent, and allows those that add enough."""

    def __init__(self, enough: float) -> None:
        self.enough, self.added = enough, [1.0]

    def choose(self, confidences: object) -> int | None:
        return 0

    def allows(self, num_drafted: int, confidence: float | None = None, parent: int | None = None) -> bool:
        if confidence is None:
            return True
        assert parent is not None
        self.added[num_drafted + 1 :] = [self.added[parent + 1] * confidence]
        return self.added[-1] >= self.enough


def test_confidences_multiply_along_a_path_to_what_a_guess_adds() -> None:
    limit = Summing(0.1)
    draft = grown(DynamicTree(40, width=5, depth=3), limit)
    assert 1 < len(draft) < 40
    assert all(likelihood(path) >= 0.1 for path in paths(draft))
    assert limit.added[1:-1] == pytest.approx([likelihood(path) for path in paths(draft)])


def test_a_draft_model_with_little_room_left_grows_as_far_as_it_can() -> None:
    shape = StaticTree.branching(2, 2, 1)
    short = TabularModel(MODEL.table, max_length=5)
    assert grown(shape, model=short).token_ids == grown(shape).token_ids[:6]
    full = TabularModel(MODEL.table, max_length=3)
    assert grown(shape, model=full).token_ids == grown(shape).token_ids[:2]
    assert len(grown(shape, model=TabularModel(MODEL.table, max_length=2))) == 0


class WithoutTrees(TabularModel):
    scores_trees = False


def test_models_that_cannot_score_trees_are_refused_by_name() -> None:
    chains = WithoutTrees(MODEL.table, name="chains-only")
    with pytest.raises(UnsupportedError, match="chains-only cannot score trees"):
        TreeDraftModel(MODEL).open(chains, 1, 10)
    with pytest.raises(UnsupportedError, match="chains-only cannot score trees"):
        TreeDraftModel(chains).open(TARGET, 1, 10)


def test_another_tokenizer_is_refused() -> None:
    class Other(PieceTokenizer):
        def difference(self, other: object) -> str:
            return "one token"

    one, other = (TabularModel(MODEL.table, tokenizer=Other([b"a"])) for _ in range(2))
    with pytest.raises(TokenizerMismatchError, match="one token"):
        TreeDraftModel(one).open(other, 1, 10)
