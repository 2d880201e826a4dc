"""Whatever is drafted, chain or tree, the exact law of the output under every rule is the target's."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from draftwise.models.tabular import TabularModel
from draftwise.randomness import Randomness, Streams
from draftwise.sampling import SamplingParams
from draftwise.types import Draft, Probs, Verdict
from draftwise.verification import Rule, matching, recursive_rejection, residual, traversal
from draftwise.verification.residual import acceptance_probability, drawn_from, excess
from tests.enumeration import Tokens, distance, enumerate_outcomes, law_of_target
from tests.models.conformance import random_tree
from tests.verification.lazily import (
    CHAIN,
    THREE_TWO_ONE,
    TWO_BY_TWO,
    Setting,
    branching,
    completed,
)

EXACT = {"recursive rejection": recursive_rejection, "traversal": traversal, "matching": matching}
SHAPES = {
    "nothing": (),
    "chain": CHAIN,
    "2x2": TWO_BY_TWO,
    "3-2-1": THREE_TWO_ONE,
    "three, each with two": branching(3, 2),
    **{f"random {seed}": tuple(random_tree(np.random.default_rng(seed), 6)) for seed in range(8)},
}
every_rule = pytest.mark.parametrize("rule", EXACT.values(), ids=EXACT)
every_shape = pytest.mark.parametrize("parents", SHAPES.values(), ids=SHAPES)
either_draw = pytest.mark.parametrize("replacement", [True, False], ids=["with", "without"])


def error(setting: Setting, rule: Rule) -> float:
    """How far the law of the output is from the target's."""
    law = completed(setting, rule)
    assert sum(law.values()) == pytest.approx(1, abs=1e-12)
    expected = law_of_target(setting.target, setting.prompt, setting.depth + 1, setting.sampling)
    return distance(law, expected)


@every_rule
@every_shape
@either_draw
def test_law_of_the_output(rule: Rule, parents: tuple[int, ...], replacement: bool) -> None:
    assert error(Setting.random(len(parents), parents=parents, replacement=replacement), rule) < 1e-12


@every_rule
@either_draw
def test_all_branches_of_three_then_two_then_one(rule: Rule, replacement: bool) -> None:
    setting = Setting.random(3, vocab_size=2, parents=branching(3, 2, 1), replacement=replacement)
    assert error(setting, rule) < 1e-12


@every_rule
@either_draw
@pytest.mark.parametrize("parents", [CHAIN, TWO_BY_TWO, THREE_TWO_ONE])
@pytest.mark.parametrize("vocab_size", [2, 4], ids=["narrower", "wider"])
def test_another_vocabulary(rule: Rule, replacement: bool, parents: tuple[int, ...], vocab_size: int) -> None:
    setting = Setting.random(5, parents=parents, replacement=replacement)
    draft_model = TabularModel.random(vocab_size, 2, seed=8)
    if vocab_size > setting.target.vocab_size:  # what the target lacks is filtered out, as drafters do
        draft_model.table[..., setting.target.vocab_size :] = -np.inf
    assert error(replace(setting, draft_model=draft_model), rule) < 1e-12


@every_rule
@either_draw
@pytest.mark.parametrize("parents", [CHAIN, TWO_BY_TWO, THREE_TWO_ONE])
@pytest.mark.parametrize(
    "sampling", [SamplingParams(), SamplingParams(1.0, top_k=2), SamplingParams(0.7, top_p=0.7)], ids=str
)
def test_filters_that_leave_few_tokens(
    rule: Rule, replacement: bool, parents: tuple[int, ...], sampling: SamplingParams
) -> None:
    """Both sides have tokens of probability zero, and siblings may run out of tokens."""
    setting = Setting.random(7, parents=parents, replacement=replacement, sampling=sampling)
    assert error(setting, rule) < 1e-12


@every_rule
@either_draw
@pytest.mark.parametrize("parents", [CHAIN, TWO_BY_TWO])
def test_a_draft_model_that_is_the_target(rule: Rule, replacement: bool, parents: tuple[int, ...]) -> None:
    setting = Setting.random(2, parents=parents, replacement=replacement)
    assert error(replace(setting, draft_model=setting.target), rule) < 1e-12


def law_of_deterministic(rule: Rule, draft: Draft, setting: Setting) -> dict[Tokens, float]:
    def run(streams: Streams) -> Tokens:
        verdict = rule(draft, setting.target_probs(draft), streams.acceptance, streams.recovery)
        return (*(draft.token_ids[index] for index in verdict.path), verdict.token_id)

    return enumerate_outcomes(run)


@pytest.mark.parametrize("seed", range(10))
def test_deterministic_trees_have_one_law_under_every_rule(seed: int) -> None:
    """The rules differ in how they decide, not in how often (reference: EAGLE-2's loop, and one draw)."""
    rng = np.random.default_rng(seed)
    parents = tuple(random_tree(rng, 7))
    tokens: list[int] = []
    for index, parent in enumerate(parents):
        siblings = {tokens[other] for other in range(index) if parents[other] == parent}
        tokens.append(int(rng.choice(sorted(set(range(7)) - siblings))))
    setting = Setting.random(seed, vocab_size=4, parents=parents)  # it lacks some of the tokens guessed
    target_of_any_context = TabularModel(rng.normal(size=4))
    setting = replace(setting, target=target_of_any_context)
    laws = [
        law_of_deterministic(rule, Draft(tuple(tokens), None, parents), setting) for rule in EXACT.values()
    ]
    assert sum(laws[0].values()) == pytest.approx(1, abs=1e-12)
    assert distance(laws[0], laws[1]) < 1e-12
    assert distance(laws[0], laws[2]) < 1e-12
    first = dict.fromkeys(range(4), 0.0)
    for emitted, probability in laws[0].items():
        first[emitted[0]] += probability
    p = setting.next_probs(target_of_any_context, [])
    assert list(first.values()) == pytest.approx(p.tolist(), abs=1e-12)


@every_rule
@either_draw
def test_some_siblings_may_be_deterministic(rule: Rule, replacement: bool) -> None:
    """The likeliest token for certain, then one drawn from the others: point masses among distributions."""

    class GreedyFirst(Setting):
        def draft(self, randomness: Randomness) -> Draft:
            q = self.next_probs(self.draft_model, [])
            best = int(q.argmax())
            rest = np.where(np.arange(len(q)) == best, 0, q)
            rest /= rest.sum()
            point = np.eye(len(q))[best]
            drawn = randomness.sample(rest)
            return Draft((best, drawn, best), [point, rest, point], (-1, -1, 0))

    random = Setting.random(4, parents=(-1, -1, 0))
    setting = GreedyFirst(random.target, random.draft_model, random.parents, replacement)
    assert error(setting, rule) < 1e-12


# What follows is wrong on purpose: the comparison above has to see it.


class Sorted(Setting):
    """Puts siblings in the order of their probability after they were drawn."""

    def draft(self, randomness: Randomness) -> Draft:
        drawn = super().draft(randomness)
        probs = drawn.probs
        assert probs is not None
        by_probability = sorted(range(len(drawn)), key=lambda index: -probs[index][drawn.token_ids[index]])
        return Draft(
            tuple(drawn.token_ids[index] for index in by_probability),
            [probs[index] for index in by_probability],
            drawn.parents,
        )


class Deduplicated(Setting):
    """Draws siblings with replacement and drops those that came twice."""

    def draft(self, randomness: Randomness) -> Draft:
        drawn = super().draft(randomness)
        assert drawn.probs is not None
        kept = [index for index in range(len(drawn)) if drawn.token_ids[index] not in drawn.token_ids[:index]]
        return Draft(
            tuple(drawn.token_ids[index] for index in kept),
            [drawn.probs[index] for index in kept],
            (-1,) * len(kept),
        )


def independent_tests(
    draft: Draft, target_probs: Sequence[Probs], acceptance: Randomness, recovery: Randomness
) -> Verdict:
    """Tests each sibling against p itself, as if those before it had not been rejected."""
    p = target_probs[0]
    for child in draft.children()[0]:
        if acceptance.accept(acceptance_probability(draft.token_ids[child], p, drawn_from(draft, child, p))):
            return Verdict((child,), recovery.sample(target_probs[child + 1]))
        q = drawn_from(draft, child, p)
    return Verdict((), recovery.sample(residual(p, q)))


def block_with_a_break(
    draft: Draft, target_probs: Sequence[Probs], acceptance: Randomness, recovery: Randomness
) -> Verdict:
    """Block verification that ends at the first position whose test fails."""
    assert draft.probs is not None
    reach, accepted = 1.0, 0
    reaches = [1.0]
    for position, token_id in enumerate(draft.token_ids):
        ratio = target_probs[position][token_id] / draft.probs[position][token_id]
        reach = min(1.0, reach * ratio)
        reaches.append(reach)
    for position in range(1, len(draft) + 1):
        probability = reaches[position]
        if position < len(draft):
            mass = excess(target_probs[position], draft.probs[position], probability).sum()
            probability = mass / (mass + 1 - probability) if mass else 0.0
        if not acceptance.accept(probability):
            break
        accepted = position
    path = tuple(range(accepted))
    if accepted == len(draft):
        return Verdict(path, recovery.sample(target_probs[accepted]))
    rest = excess(target_probs[accepted], draft.probs[accepted], reaches[accepted])
    return Verdict(path, recovery.sample(rest / rest.sum() if rest.any() else target_probs[accepted]))


SIBLINGS = (-1, -1, -1)


@pytest.mark.parametrize("rule", [recursive_rejection, traversal])
@pytest.mark.parametrize("kind", [Sorted, Deduplicated])
def test_siblings_out_of_order_or_left_out_are_seen(rule: Rule, kind: type[Setting]) -> None:
    honest = Setting.random(1, vocab_size=4, parents=SIBLINGS, replacement=True)
    assert error(honest, rule) < 1e-12
    faulty = kind(honest.target, honest.draft_model, SIBLINGS, True)
    assert error(faulty, rule) > 1e-4


@either_draw
def test_independent_tests_of_siblings_are_seen(replacement: bool) -> None:
    setting = Setting.random(1, parents=(-1, -1), replacement=replacement)
    assert error(setting, independent_tests) > 1e-3


def test_a_break_in_block_verification_is_seen() -> None:
    assert error(Setting.random(1), traversal) < 1e-12
    assert error(Setting.random(1), block_with_a_break) > 1e-3
