"""Each rule on a single token, and what the rules share."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwise.errors import DraftError, OptionError
from draftwise.randomness import Randomness, Streams
from draftwise.theory import acceptance_rate
from draftwise.types import Draft, Probs, Verdict
from draftwise.verification import (
    RULES,
    Rule,
    acceptance_probability,
    find_rule,
    recursive_rejection,
    residual,
    verify,
)
from tests.enumeration import enumerate_outcomes


@st.composite
def distributions(draw: st.DrawFn, min_size: int = 1) -> Probs:
    """Up to five tokens, with zeros, ties and very small numbers among their probabilities."""
    weight = st.sampled_from([0.0, 1e-300, 1e-20, 1.0]) | st.floats(0, 1)
    weights = np.array(
        draw(st.lists(weight, min_size=min_size, max_size=5).filter(lambda ws: sum(ws) > 1e-290))
    )
    probs: Probs = weights / weights.sum()
    return probs


EXACT = {name: RULES[name] for name in ("token", "block", "matching")}
every_rule = pytest.mark.parametrize("rule", EXACT.values(), ids=EXACT)


def law_of_one_token(
    p: Probs, q: Probs | None, deterministic: int = 0, rule: Rule = verify
) -> dict[int, float]:
    """The law of the first emitted token, whatever comes after it."""
    anything = np.ones(1)

    def run(streams: Streams) -> int:
        token_id = deterministic if q is None else streams.drafting.sample(q)
        draft = Draft((token_id,), None if q is None else [q])
        verdict = rule(draft, [p, anything], streams.acceptance, streams.recovery)
        return token_id if verdict.num_accepted else verdict.token_id

    return enumerate_outcomes(run)


@every_rule
@given(distributions(), distributions())
def test_one_token_has_the_law_of_the_target(rule: Rule, p: Probs, q: Probs) -> None:
    """Also where the vocabularies differ in size, in either direction."""
    law = law_of_one_token(p, q, rule=rule)
    assert set(law) <= set(np.flatnonzero(p))
    assert [law.get(token_id, 0.0) for token_id in range(len(p))] == pytest.approx(p, abs=1e-12)


@every_rule
@given(distributions(), st.integers(0, 6))
def test_a_deterministic_guess_leaves_the_law_alone(rule: Rule, p: Probs, guess: int) -> None:
    """Also where the guess is a token that the target lacks."""
    law = law_of_one_token(p, None, guess, rule)
    assert set(law) <= set(np.flatnonzero(p))
    assert [law.get(token_id, 0.0) for token_id in range(len(p))] == pytest.approx(p, abs=1e-12)


@every_rule
@given(distributions(), distributions())
def test_in_float32_the_law_is_off_by_rounding_alone(rule: Rule, p: Probs, q: Probs) -> None:
    p, q = p.astype(np.float32), q.astype(np.float32)
    law = law_of_one_token(p, q, rule=rule)
    assert [law.get(token_id, 0.0) for token_id in range(len(p))] == pytest.approx(p, abs=1e-6)


@given(distributions(), distributions())
def test_a_token_is_accepted_with_the_rate_of_the_theory(p: Probs, q: Probs) -> None:
    rate = sum(q[x] * acceptance_probability(x, p, q) for x in np.flatnonzero(q).tolist())
    assert rate == pytest.approx(acceptance_rate(p, q), abs=1e-12)


def test_acceptance_probability() -> None:
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.5, 0.0, 0.25])
    assert [acceptance_probability(token_id, p, q) for token_id in (0, 1, 3)] == [1.0, 0.5, 0.0]


def test_residual() -> None:
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.5, 0.0, 0.25])
    assert residual(p, q).tolist() == [0.5, 0.0, 0.5]
    assert residual(q, p).tolist() == [0.0, 0.5, 0.0, 0.5]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_residual_keeps_the_dtype_and_its_arguments(dtype: type[np.floating]) -> None:
    p, q = np.array([0.75, 0.25], dtype), np.array([0.25, 0.75], np.float64)
    before = p.copy(), q.copy()
    assert residual(p, q).dtype == dtype
    np.testing.assert_array_equal((p, q), before)


def test_residual_of_equal_distributions_is_the_target() -> None:
    p = np.array([0.25, 0.75])
    assert residual(p, p).tolist() == p.tolist()


def test_residual_of_what_is_almost_equal_is_a_distribution() -> None:
    p = np.array([0.5, 0.5], np.float32)
    q = np.array([np.nextafter(np.float32(0.5), np.float32(1)), 0.5 - 1e-40], np.float32)
    rest = residual(p, q)
    assert np.isfinite(rest).all()
    assert rest.sum() == pytest.approx(1)


class Acceptance(Randomness):
    """Accepts, or rejects, whatever it is asked; remembers the questions."""

    def __init__(self, accepts: bool) -> None:
        self.accepts = accepts
        self.asked: list[float] = []

    def accept(self, probability: float) -> bool:
        self.asked.append(probability)
        return self.accepts

    def sample(self, probs: Probs) -> int:
        raise AssertionError("acceptance is asked for a token")

    def ahead(self, offset: int) -> Randomness:
        return self


class Recovery(Randomness):
    """Takes the most likely token."""

    def accept(self, probability: float) -> bool:
        raise AssertionError("recovery is asked to accept")

    def sample(self, probs: Probs) -> int:
        return int(probs.argmax())

    def ahead(self, offset: int) -> Randomness:
        return self


UNIFORM = np.full(4, 0.25)
SLOPE = np.array([0.1, 0.2, 0.3, 0.4])


def test_a_draft_accepted_whole_is_followed_by_a_bonus_token() -> None:
    acceptance = Acceptance(True)
    draft = Draft((0, 1), [UNIFORM, UNIFORM])
    assert recursive_rejection(draft, [SLOPE, SLOPE, SLOPE[::-1]], acceptance, Recovery()) == Verdict(
        (0, 1), 0
    )
    assert acceptance.asked == pytest.approx([0.4, 0.8])


def test_nothing_after_a_rejection_is_looked_at() -> None:
    """The distributions after it may be costly: here they do not even exist."""
    acceptance = Acceptance(False)
    draft = Draft((0, 1, 2), [UNIFORM, UNIFORM, UNIFORM])
    assert recursive_rejection(draft, [SLOPE], acceptance, Recovery()) == Verdict((), 3)
    assert len(acceptance.asked) == 1


@every_rule
def test_an_empty_draft_gives_a_bonus_token(rule: Rule) -> None:
    assert rule(Draft(), [SLOPE], Acceptance(True), Recovery()) == Verdict((), 3)


@pytest.mark.parametrize("rule", [EXACT["block"], EXACT["matching"]])
def test_nothing_is_looked_at_behind_a_token_that_the_target_cannot_emit(rule: Rule) -> None:
    impossible = np.array([0.0, 1.0, 0.0, 0.0])
    draft = Draft((0, 1, 2), [UNIFORM, UNIFORM, UNIFORM])
    assert rule(draft, [impossible], Streams.seeded(0).acceptance, Recovery()) == Verdict((), 1)


def test_deterministic_guesses_are_matched_without_any_question() -> None:
    draft = Draft((3, 3, 1))
    assert verify(draft, [SLOPE, SLOPE, UNIFORM, UNIFORM], Recovery(), Recovery()) == Verdict((0, 1), 0)


def test_rules_are_found_by_name() -> None:
    assert find_rule("auto") is verify
    assert find_rule("block") is find_rule("traversal")
    with pytest.raises(OptionError, match="'blocks'; give one of auto, token"):
        find_rule("blocks")


@pytest.mark.parametrize(
    ("parents", "message"),
    [((-1,), "2 tokens has 1"), ((-1, 1), "token 1 .* parent 1"), ((-2, 0), "parent -2")],
)
def test_a_draft_that_is_no_tree_is_refused(parents: tuple[int, ...], message: str) -> None:
    with pytest.raises(DraftError, match=message):
        Draft((0, 1), None, parents)


@pytest.mark.parametrize("probs", [[np.array([1.0, 0.0])], [np.array([1.0])]], ids=["zero", "too narrow"])
def test_a_token_that_could_not_be_drawn_is_refused(probs: Sequence[Probs]) -> None:
    """Going on would give an output that is not the target's, and no one would see it."""
    acceptance = Acceptance(True)
    with pytest.raises(DraftError, match=r"token 1.*0\.0"):
        recursive_rejection(Draft((1,), probs), [UNIFORM, UNIFORM], acceptance, Recovery())
