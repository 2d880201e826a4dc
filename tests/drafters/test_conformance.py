"""What holds for every drafter, alone and in the loop."""

from collections import Counter
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from draftwise.control.fixed import Fixed
from draftwise.decoding import generate, stream
from draftwise.loop import begin, step
from draftwise.models.base import LanguageModel
from draftwise.models.tabular import TabularModel
from draftwise.randomness import Streams
from draftwise.sampling import Sampler, SamplingParams, adjusted_probs
from draftwise.sequence import Sequence, StopConditions
from draftwise.types import Draft
from draftwise.verification import RULES, Rule
from tests.drafters.case import Case
from tests.drafters.cases import DRAFTERS
from tests.drafters.conformance import (
    SAMPLINGS,
    ask,
    ask_one,
    drafting,
    open_for,
    path_and_siblings,
    play,
    target_and_rows,
)
from tests.enumeration import distance, law_of_generate, law_of_target
from tests.models.tiny import one_thread  # noqa: F401
from tests.test_joint_law import without_residual

every_drafter = pytest.mark.parametrize("case", DRAFTERS, ids=lambda case: case.name)
every_pair = pytest.mark.parametrize(
    ("case", "target"),
    [
        pytest.param(case, target, id=f"{case.name}-for-{target.vocab_size}")
        for case in DRAFTERS
        for target in case.targets
    ],
)
every_sampling = pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)


def examples(count: int) -> settings:
    """So many of them, however slow the machine is."""
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])


# A text that repeats itself, so that lookup finds something after every end of it.
PROMPT = (0, 1, 2, 0, 1, 1, 2, 0, 1)
SAMPLED = SamplingParams(temperature=1.0)
NUM_ROWS = 2000


@every_drafter
@examples(40)
@given(st.data())
def test_draft_depends_on_the_context_alone(case: Case, data: st.DataObject) -> None:
    """Whatever was drafted, accepted, rejected and left out before: a new state drafts the same."""
    target, rows = data.draw(target_and_rows(case))
    for (asked,) in play(open_for(case, target), rows):
        new = open_for(case, target, prompt=rows[0].prompt)
        again = ask_one(new, asked.context, asked.limit, asked.sampling, asked.seed)
        case.assert_same(asked.draft, again.draft)


@every_drafter
@every_sampling
@pytest.mark.parametrize("num_accepted", range(6))
def test_rejection_at_every_position(case: Case, sampling: SamplingParams, num_accepted: int) -> None:
    state = open_for(case, case.target)
    drafted = ask_one(state, PROMPT, 5, sampling).draft.token_ids
    kept = drafted[:num_accepted]
    rejected = drafted[num_accepted : num_accepted + 1] or (0,)
    context = (*PROMPT, *kept, (rejected[0] + 1) % case.target.vocab_size)
    case.assert_same(
        ask_one(state, context, 5, sampling, seed=1).draft,
        ask_one(open_for(case, case.target, prompt=PROMPT), context, 5, sampling, seed=1).draft,
    )


@every_drafter
@examples(25)
@given(st.data())
def test_each_row_of_a_batch_is_as_it_is_alone(case: Case, data: st.DataObject) -> None:
    target, rows = data.draw(target_and_rows(case, max_rows=4))
    together = list(play(open_for(case, target, len(rows)), rows))
    for index, row in enumerate(rows):
        alone = [asked for (asked,) in play(open_for(case, target), [row])]
        for number, asked in enumerate(together):
            if number < len(alone):
                case.assert_same(asked[index].draft, alone[number].draft)
            else:
                assert not asked[index].draft.token_ids


@every_drafter
@examples(15)
@given(st.data())
def test_a_row_that_begins_anew_is_as_it_is_alone(case: Case, data: st.DataObject) -> None:
    target, rows = data.draw(target_and_rows(case, max_rows=2))
    state = open_for(case, target)
    for row in rows:
        state.begin(0, None)
        for (again,), (asked,) in zip(play(state, [row]), play(open_for(case, target), [row]), strict=True):
            case.assert_same(again.draft, asked.draft)


@every_drafter
@examples(15)
@given(st.data())
def test_states_of_one_drafter_do_not_meet(case: Case, data: st.DataObject) -> None:
    target, rows = data.draw(target_and_rows(case, max_rows=2))
    states = [open_for(case, target) for _ in rows]
    games = [play(state, [row]) for state, row in zip(states, rows, strict=True)]
    interleaved = [[next(game, None) for game in games] for _ in range(5)]
    for index, row in enumerate(rows):
        for number, (asked,) in enumerate(play(open_for(case, target), [row])):
            met = interleaved[number][index]
            assert met is not None
            case.assert_same(met[0].draft, asked.draft)


@every_pair
@every_sampling
def test_tokens_are_drawn_from_the_stored_distributions(
    case: Case, sampling: SamplingParams, target: LanguageModel
) -> None:
    """With the random numbers it was given, in order, and no others; a deterministic drafter takes none."""
    for seed in range(9):
        context = [*PROMPT, seed % 3, target.vocab_size - 1]
        draft = ask_one(open_for(case, target), context, 5, sampling, seed).draft
        assert all(0 <= token_id < target.vocab_size for token_id in draft.token_ids)
        if draft.probs is None:
            assert case.says is None or sampling.temperature == 0 or not draft.token_ids
            another = ask_one(open_for(case, target), context, 5, sampling, seed + 1).draft
            assert draft.token_ids == another.token_ids
            continue
        replayed = drafting(seed)
        assert len(draft.probs) == len(draft)
        for position, (token_id, probs) in enumerate(zip(draft.token_ids, draft.probs, strict=True)):
            assert probs.sum() == pytest.approx(1, abs=1e-6)
            assert len(probs) <= target.vocab_size
            assert probs[token_id] > 0
            assert replayed.sample(probs) == token_id
            assert case.says is not None
            path, siblings = path_and_siblings(draft, position)
            expected = adjusted_probs(case.says(target, context, path), sampling)
            for sibling in siblings:  # drawn without replacement
                expected[sibling] = 0
                expected = expected / expected.sum()
            np.testing.assert_allclose(probs, expected, rtol=0, atol=case.tolerance)


@every_drafter
@every_sampling
def test_no_draft_is_asked_for(case: Case, sampling: SamplingParams) -> None:
    """A limit of zero, in any row at any time; and the shortest prompt there is."""
    state = open_for(case, case.target, num_sequences=2)
    for limits in ([0, 0], [0, 3], [3, 0], [0, 0]):
        asked = ask(state, [[2], [1]], limits, [sampling] * 2, [0, 1])
        assert [len(one.draft) for one in asked if not one.limit] == [0] * limits.count(0)


@every_drafter
@every_sampling
@pytest.mark.parametrize("least_confidence", [0.35, 0.5, 0.65, 1.1])
def test_a_draft_may_end_where_the_drafter_is_unsure(
    case: Case, sampling: SamplingParams, least_confidence: float
) -> None:
    """It is then the start of the draft that it would have been: no token is drawn and left out."""
    state = open_for(case, case.target)
    context = list(PROMPT)
    for seed in range(10):
        whole = ask_one(open_for(case, case.target, prompt=PROMPT), context, 5, sampling, seed).draft
        unsure = ask_one(state, context, 5, sampling, seed, least_confidence).draft
        probs = whole.probs and whole.probs[: len(unsure)]
        parents = None if whole.parents is None else whole.parents[: len(unsure)]
        case.assert_same(unsure, Draft(whole.token_ids[: len(unsure)], probs or None, parents))
        assert least_confidence <= 1 or not unsure
        context += [*unsure.token_ids[: seed % 3], seed % case.target.vocab_size]


@every_drafter
def test_contexts_may_fill_the_state(case: Case) -> None:
    """At every length up to the last that a state is opened for, a draft is as it is in a larger state."""
    max_length = 12
    state = open_for(case, case.target, max_length=max_length)
    context = [0]
    while len(context) < max_length:
        limit = max_length - 1 - len(context)  # as the loop asks: the target adds one token
        roomy = ask_one(open_for(case, case.target, prompt=[0]), context, limit, SAMPLED, seed=len(context))
        case.assert_same(ask_one(state, context, limit, SAMPLED, seed=len(context)).draft, roomy.draft)
        context.append(len(context) % 2)


@every_drafter
def test_closing_midway_leaves_the_drafter_usable(case: Case) -> None:
    state = open_for(case, case.target)
    first = ask_one(state, PROMPT, 4, SAMPLED)
    state.close()
    state.close()
    case.assert_same(ask_one(open_for(case, case.target), PROMPT, 4, SAMPLED).draft, first.draft)


@every_pair
def test_greedy_output_is_plain_output(case: Case, target: LanguageModel) -> None:
    plain = generate(target, PROMPT, max_new_tokens=25).token_ids
    for num_draft_tokens in (None, 0, 1, 2, 5):
        drafted = generate(
            target, PROMPT, drafter=case.make(target), max_new_tokens=25, num_draft_tokens=num_draft_tokens
        )
        assert drafted.token_ids == plain
    options: dict[str, Any] = {
        "drafter": case.make(target),
        "num_draft_tokens": None,
        "max_new_tokens": 25,
    }
    half_way = stream(target, PROMPT, **options)
    next(half_way)
    assert generate(target, PROMPT, **options).token_ids == plain


@pytest.mark.parametrize("case", [case for case in DRAFTERS if case.is_exact], ids=lambda case: case.name)
@pytest.mark.parametrize("sampling", [SAMPLED, SAMPLINGS[-1]], ids=str)
def test_joint_law_is_the_targets(case: Case, sampling: SamplingParams) -> None:
    """Every draft and every outcome of its verification, enumerated."""
    for target in case.targets:
        assert isinstance(target, TabularModel)
        options = {"drafter": case.make(target), "sampling": sampling, "num_draft_tokens": 2}
        law = law_of_generate(target, PROMPT, 3, **options)
        assert distance(law, law_of_target(target, PROMPT, 3, sampling)) < 1e-12


def p_value(case: Case, rule: Rule = RULES["auto"]) -> float:
    """Of the joint counts of the first two tokens, with real random numbers, against the target's law."""
    rows = [
        Sequence(PROMPT, StopConditions(3), Sampler(SAMPLED), Streams.seeded(seed), None, rule)
        for seed in range(NUM_ROWS)
    ]
    max_length = len(PROMPT) + 3
    with (
        closing(case.make(case.target).open(case.target, NUM_ROWS, max_length)) as drafting,
        closing(case.target.open(NUM_ROWS, max_length, taps=drafting.taps)) as cache,
    ):
        for row, sequence in enumerate(rows):
            begin(cache, drafting, [row], sequence)
        while not all(row.finish_reason for row in rows):
            step(cache, drafting, Fixed(2), rows)
    counts = Counter(tuple(row.token_ids[len(PROMPT) :][:2]) for row in rows)
    law = law_of_target(case.target, PROMPT, 2, SAMPLED)
    assert counts.keys() <= law.keys()
    expected = np.array([law[tokens] for tokens in law])
    return float(chisquare([counts[tokens] for tokens in law], expected / expected.sum() * NUM_ROWS).pvalue)


@every_drafter
def test_joint_counts_are_the_targets(case: Case) -> None:
    assert p_value(case) > 1e-3


@pytest.mark.parametrize(
    "case",
    [case for case in DRAFTERS if case.name not in ("none", "the-target-itself")],
    ids=lambda case: case.name,
)
def test_joint_counts_expose_a_verifier_without_a_residual(case: Case) -> None:
    assert p_value(case, without_residual) < 1e-9
