"""Confidences are calibrated to what happens, quickly after a change, and kinds of tokens are told apart."""

import numpy as np
import pytest

from draftwise.control.acceptance import MOST, Acceptance


def learn(
    acceptance: Acceptance, chances: list[float], said: list[float | None], steps: int, seed: int
) -> None:
    """Verify drafts whose tokens are accepted with `chances`, each given that those before it are."""
    random = np.random.default_rng(seed)
    for _ in range(steps):
        wrong = next((n for n, chance in enumerate(chances) if random.random() >= chance), len(chances))
        acceptance.observe(said, wrong)


def test_at_first_a_confidence_is_believed() -> None:
    for confidence in (0.2, 0.5, 0.8, 0.94):
        assert Acceptance().ahead(0, confidence)[0] == pytest.approx(confidence, abs=0.06)


def test_what_follows_a_doubtful_token_is_no_more_doubtful_than_anything() -> None:
    unknown = Acceptance().ahead(0, None)[0]
    for confidence in (0.05, 0.3):
        assert Acceptance().ahead(0, confidence)[1] == pytest.approx(unknown)
    sure, follows, *_ = Acceptance().ahead(0, 0.95)
    assert follows == sure > unknown


def test_what_follows_is_learnt_after_it_was_asked_for() -> None:
    acceptance = Acceptance()
    before = acceptance.ahead(0, 0.5)[1]
    learn(acceptance, [1.0, 0.0], [0.5, 0.9], 40, seed=0)
    assert acceptance.ahead(0, 0.5)[1] < before - 0.2


@pytest.mark.parametrize(("said", "chance"), [(0.9, 0.5), (0.5, 0.9), (0.8, 0.8)])
def test_a_confidence_comes_to_mean_what_happens(said: float, chance: float) -> None:
    acceptance = Acceptance()
    learn(acceptance, [chance], [said], 200, seed=0)
    assert acceptance.ahead(0, said)[0] == pytest.approx(chance, abs=0.1)


def test_what_one_confidence_teaches_holds_for_others() -> None:
    """A drafter that is too sure where it is sure will be so elsewhere."""
    acceptance = Acceptance()
    learn(acceptance, [0.3], [0.9], 30, seed=0)
    assert acceptance.ahead(0, 0.7)[0] < 0.4


def test_positions_are_told_apart() -> None:
    chances = [0.9, 0.2, 0.8]
    acceptance = Acceptance()
    learn(acceptance, chances, [None] * 3, 1500, seed=0)
    assert list(acceptance.ahead(0, None))[:3] == pytest.approx(chances, abs=0.2)
    assert list(acceptance.ahead(1, None))[:2] == list(acceptance.ahead(0, None))[1:3]
    assert len(acceptance.ahead(0, None)) == MOST


def test_few_confidences_tell_what_a_position_is_worth() -> None:
    """Those of tokens that were refused as much as those of tokens that were drafted."""
    drafted, refused = Acceptance(), Acceptance()
    for turn in range(10):
        drafted.observe([0.2], int(turn % 5 == 4))
        refused.observe([], 0, refused=(-1, refused.ahead(0, 0.2)[0]))
    for acceptance in (drafted, refused):
        assert acceptance.ahead(0, None)[0] == pytest.approx(0.2, abs=0.18)


@pytest.mark.parametrize(("before", "after"), [(0.9, 0.1), (0.1, 0.9)])
def test_an_abrupt_change_is_noticed(before: float, after: float) -> None:
    acceptance = Acceptance()
    learn(acceptance, [before], [0.5], 500, seed=0)
    learn(acceptance, [after], [0.5], 25, seed=1)
    assert acceptance.ahead(0, 0.5)[0] == pytest.approx(after, abs=0.2)


def test_thousands_of_steps_are_remembered_as_hundreds_are() -> None:
    few, many = Acceptance(), Acceptance()
    many.observe([0.5], 0)
    learn(many, [0.7], [0.5], 4000, seed=0)
    learn(few, [0.7], [0.5], 1200, seed=0)
    assert many.ahead(0, 0.5)[0] == pytest.approx(0.7, abs=0.1)
    learn(few, [0.95], [0.5], 300, seed=1)
    learn(many, [0.95], [0.5], 300, seed=1)
    assert many.ahead(0, 0.5)[0] == pytest.approx(few.ahead(0, 0.5)[0], abs=0.05)


def test_a_long_copy_counts_for_less_than_as_many_drafts() -> None:
    once, often = Acceptance(), Acceptance()
    once.observe([0.8] * 9, 9)
    for _ in range(9):
        often.observe([0.8], 1)
    assert once.ahead(0, 0.8)[0] < often.ahead(0, 0.8)[0]


def test_each_guess_of_a_tree_is_learnt_for_itself() -> None:
    """Of two at a position, and of two after the first of them, at most one is right."""
    parents, said = [-1, -1, 0, 0], [0.6, 0.3, 0.6, 0.3]
    paths = {(0, 2): 0.35, (0, 3): 0.1, (0,): 0.05, (1,): 0.3, (): 0.2}
    random, acceptance = np.random.default_rng(0), Acceptance()
    for choice in random.choice(len(paths), 600, p=list(paths.values())):
        path = list(paths)[choice]
        acceptance.observe(said, len(path), parents, path)
    assert acceptance.ahead(0, 0.6)[0] == pytest.approx((0.5 + 0.35) / (1 + 0.5), abs=0.08)
    assert acceptance.ahead(0, 0.3)[0] == pytest.approx((0.3 + 0.1) / (1 + 0.5), abs=0.08)
    # That the text goes on with a guess, and then with another one, whichever they are.
    assert list(acceptance.ahead(0, None))[:2] == pytest.approx([0.8, 0.9], abs=0.15)


def test_a_tree_of_one_path_is_a_chain() -> None:
    chain, tree = Acceptance(), Acceptance()
    for num_accepted in (0, 2, 3, 1):
        chain.observe([0.8, None, 0.4], num_accepted)
        tree.observe([0.8, None, 0.4], num_accepted, [-1, 0, 1], range(num_accepted))
    for confidence in (None, 0.4, 0.8):
        assert chain.ahead(0, confidence) == tree.ahead(0, confidence)
