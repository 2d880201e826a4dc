"""The exact joint law of the next tokens, by enumerating every outcome of the real loop, is the target's."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwise import loop
from draftwise.control.base import Limit
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.none import NoDrafter
from draftwise.models.tabular import TabularModel
from draftwise.randomness import Randomness
from draftwise.sampling import Distributions, Sampler, SamplingParams, point_mass
from draftwise.types import Draft, Logits, Probs, Verdict
from draftwise.verification import RULES, Rule, acceptance_probability, residual, verify
from tests.enumeration import distance, law_of_generate, law_of_steps, law_of_target
from tests.fakes import BlockDrafter, GuessingDrafter, SamplingDrafter

PROMPT = (0, 1)
SAMPLED = SamplingParams(1.0)
SAMPLINGS = {
    "greedy": SamplingParams(),
    "T=0.5": SamplingParams(0.5),
    "T=1": SAMPLED,
    "T=2": SamplingParams(2.0),
    "top-k": SamplingParams(1.0, top_k=2),
    "top-p": SamplingParams(1.0, top_p=0.6),
    "min-p": SamplingParams(1.0, min_p=0.4),
    "all filters": SamplingParams(0.8, top_k=3, top_p=0.9, min_p=0.1),
}


def target(vocab_size: int) -> TabularModel:
    return TabularModel.random(vocab_size, 2, seed=1)


def with_bans(vocab_size: int, seed: int) -> TabularModel:
    """A model that gives some tokens no probability at all, other ones after other contexts."""
    table = TabularModel.random(vocab_size, 2, seed).table
    banned = np.random.default_rng(seed + 1).random(table.shape) < 0.4
    banned[..., 0] = False
    return TabularModel(np.where(banned, -np.inf, table))


def only(tokens: Sequence[int], vocab_size: int) -> TabularModel:
    """A model that emits nothing but some tokens."""
    table = TabularModel.random(vocab_size, 2, seed=5).table
    return TabularModel(np.where(np.isin(np.arange(vocab_size), tokens), table, -np.inf))


def other_than_last(context: Sequence[int]) -> Sequence[int]:
    """A guess that depends on the context, and is sometimes wrong and sometimes right."""
    return [(context[-1] + context[-2] + step) % 3 for step in range(1, 6)]


def after_zero_stop(drafted: Sequence[int]) -> bool:
    """Whether to draft one more token depends on the one before it, never on its own value."""
    return not drafted or drafted[-1] != 0


DRAFTERS: dict[str, Drafter] = {
    "none": NoDrafter(),
    "another model": SamplingDrafter(TabularModel.random(3, 2, seed=2)),
    "the target itself": SamplingDrafter(target(3)),
    "a sharper model": SamplingDrafter(TabularModel.random(3, 1, seed=3, scale=4.0)),
    "zero probabilities": SamplingDrafter(with_bans(3, seed=6)),
    "a narrower vocabulary": SamplingDrafter(TabularModel.random(2, 2, seed=4)),
    "a wider vocabulary": SamplingDrafter(TabularModel.random(5, 2, seed=4)),
    "a length that depends on the draft": SamplingDrafter(TabularModel.random(3, 2, seed=2), after_zero_stop),
    "another temperature": SamplingDrafter(TabularModel.random(3, 2, seed=2), sampling=SamplingParams(2.5)),
    "unfiltered": SamplingDrafter(TabularModel.random(3, 2, seed=2), sampling=SAMPLED),
    "a deterministic guess": GuessingDrafter(other_than_last),
    "a guess, now and then": GuessingDrafter(
        lambda tokens: [] if tokens[-1] == 1 else other_than_last(tokens)
    ),
    "a block at once": BlockDrafter(TabularModel.random(3, 2, seed=2)),
    "a draft model": DraftModel(TabularModel.random(3, 2, seed=2)),
    "a narrower draft model": DraftModel(TabularModel.random(2, 2, seed=4)),
    "a wider draft model": DraftModel(TabularModel.random(5, 2, seed=4)),
}


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("drafter", DRAFTERS.values(), ids=DRAFTERS)
def test_generate_has_the_law_of_the_target(drafter: Drafter, sampling: SamplingParams) -> None:
    law = law_of_generate(target(3), PROMPT, 3, drafter=drafter, sampling=sampling, num_draft_tokens=2)
    assert distance(law, law_of_target(target(3), PROMPT, 3, sampling)) < 1e-12


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_zero_probabilities_of_the_target(sampling: SamplingParams) -> None:
    banning = with_bans(4, seed=8)
    drafter = SamplingDrafter(TabularModel.random(4, 2, seed=2), sampling=SamplingParams(1.5))
    law = law_of_generate(banning, PROMPT, 3, drafter=drafter, sampling=sampling, num_draft_tokens=2)
    assert distance(law, law_of_target(banning, PROMPT, 3, sampling)) < 1e-12


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_disjoint_supports(sampling: SamplingParams) -> None:
    """Every draft token is rejected, and the output is still the target's."""
    even = only([0, 2], 4)
    odd = SamplingDrafter(only([1, 3], 4), sampling=SAMPLED)
    law = law_of_generate(even, PROMPT, 3, drafter=odd, sampling=sampling, num_draft_tokens=2)
    assert distance(law, law_of_target(even, PROMPT, 3, sampling)) < 1e-12


@pytest.mark.parametrize("num_draft_tokens", range(5))
@pytest.mark.parametrize("sampling", [SAMPLED, SAMPLINGS["top-p"]], ids=["T=1", "top-p"])
@pytest.mark.parametrize(
    "name",
    ["another model", "zero probabilities", "a length that depends on the draft", "a deterministic guess"],
)
def test_every_draft_length(name: str, sampling: SamplingParams, num_draft_tokens: int) -> None:
    """Whole drafts of every length: no budget is near that would cut them."""
    law = law_of_steps(
        target(3), PROMPT, 3, drafter=DRAFTERS[name], sampling=sampling, num_draft_tokens=num_draft_tokens
    )
    assert distance(law, law_of_target(target(3), PROMPT, 3, sampling)) < 1e-12


@pytest.mark.parametrize("verification", ["token", "block", "matching"])
@pytest.mark.parametrize("name", ["another model", "a block at once", "a deterministic guess"])
def test_every_rule(name: str, verification: str) -> None:
    law = law_of_steps(
        target(3),
        PROMPT,
        4,
        drafter=DRAFTERS[name],
        sampling=SAMPLED,
        num_draft_tokens=3,
        verification=verification,
    )
    assert distance(law, law_of_target(target(3), PROMPT, 4, SAMPLED)) < 1e-12


@pytest.mark.parametrize("vocab_size", [4, 5])
def test_larger_vocabularies(vocab_size: int) -> None:
    drafter = SamplingDrafter(TabularModel.random(vocab_size, 2, seed=2))
    law = law_of_steps(target(vocab_size), PROMPT, 3, drafter=drafter, sampling=SAMPLED, num_draft_tokens=2)
    assert distance(law, law_of_target(target(vocab_size), PROMPT, 3, SAMPLED)) < 1e-12


@settings(max_examples=40)
@given(
    st.integers(2, 3),
    st.integers(2, 4),
    st.integers(0, 10_000),
    st.builds(
        SamplingParams,
        temperature=st.floats(0.05, 20),
        top_k=st.none() | st.integers(1, 4),
        top_p=st.floats(0.1, 1),
        min_p=st.floats(0, 0.9),
    ),
    st.integers(1, 3),
)
def test_any_pair_of_models(
    vocab_size: int, draft_vocab_size: int, seed: int, sampling: SamplingParams, num_draft_tokens: int
) -> None:
    banning, draft = with_bans(vocab_size, seed), DraftModel(with_bans(draft_vocab_size, seed + 2))
    law = law_of_steps(
        banning, PROMPT, 2, drafter=draft, sampling=sampling, num_draft_tokens=num_draft_tokens
    )
    assert distance(law, law_of_target(banning, PROMPT, 2, sampling)) < 1e-12


def test_state_carried_over_many_steps() -> None:
    """A draft model whose cache follows a whole generation, through every pattern of rejections."""
    drafter = DraftModel(TabularModel.random(3, 3, seed=2))
    long_memory = TabularModel.random(3, 3, seed=1)
    sampling = SamplingParams(1.0, top_k=2)
    law = law_of_generate(long_memory, (0, 1, 2), 5, drafter=drafter, sampling=sampling, num_draft_tokens=2)
    assert distance(law, law_of_target(long_memory, (0, 1, 2), 5, sampling)) < 1e-12


def test_sequences_that_end_early() -> None:
    """An end-of-sequence token inside a draft ends the output there, and with its right probability."""
    ending = TabularModel.random(3, 2, seed=1, eos_token_ids={2})
    law = law_of_generate(
        ending, PROMPT, 3, drafter=DRAFTERS["another model"], sampling=SAMPLED, num_draft_tokens=2
    )
    expected: dict[tuple[int, ...], float] = {}
    for tokens, probability in law_of_target(ending, PROMPT, 3, SAMPLED).items():
        emitted = tokens[: tokens.index(2) + 1] if 2 in tokens else tokens
        expected[emitted] = expected.get(emitted, 0.0) + probability
    assert distance(law, expected) < 1e-12


# What follows is wrong on purpose: the comparison above has to see it.


def without_residual(
    draft: Draft, target_probs: Sequence[Probs], acceptance: Randomness, recovery: Randomness
) -> Verdict:
    """After a rejection draws from p itself."""
    for position, token_id in enumerate(draft.token_ids):
        p = target_probs[position]
        q = draft.probs[position] if draft.probs is not None else point_mass(token_id, len(p), p.dtype)
        if not acceptance.accept(acceptance_probability(token_id, p, q)):
            return Verdict(tuple(range(position)), recovery.sample(p))
    return Verdict(tuple(range(len(draft))), recovery.sample(target_probs[len(draft)]))


def with_swapped_ratio(
    draft: Draft, target_probs: Sequence[Probs], acceptance: Randomness, recovery: Randomness
) -> Verdict:
    """Accepts with probability q / p."""
    assert draft.probs is not None
    for position, token_id in enumerate(draft.token_ids):
        p, q = target_probs[position], draft.probs[position]
        if not acceptance.accept(min(1.0, q[token_id] / max(p[token_id], 1e-300))):
            return Verdict(tuple(range(position)), recovery.sample(residual(p, q)))
    return Verdict(tuple(range(len(draft))), recovery.sample(target_probs[len(draft)]))


def with_softmax_of_the_guess(
    draft: Draft, target_probs: Sequence[Probs], acceptance: Randomness, recovery: Randomness
) -> Verdict:
    """Takes a deterministic guess for one that was drawn from a uniform distribution."""
    uniform = [np.full(len(target_probs[0]), 1 / len(target_probs[0]))] * len(draft)
    return verify(Draft(draft.token_ids, uniform), target_probs, acceptance, recovery)


class FilteredAtTheLastPosition(Distributions):
    """Applies the filters to the bonus position alone."""

    def __init__(self, logits: Logits, sampler: Sampler, draft: Draft) -> None:
        super().__init__(logits, sampler, draft)
        unfiltered = Distributions(logits, Sampler(SamplingParams(sampler.params.temperature)), draft)
        self._probs = dict(enumerate(unfiltered[:-1]))


class StoresOtherProbs(SamplingDrafter):
    """Hands over the unfiltered distribution, and not the one it drew from."""

    def draft(self, context: Sequence[int], limit: Limit, sampler: Sampler, randomness: Randomness) -> Draft:
        draft = super().draft(context, limit, sampler, randomness)
        tokens = [*context, *draft.token_ids]
        return Draft(
            draft.token_ids,
            [self.next_probs(tokens[: len(context) + i], Sampler(SAMPLED)) for i in range(len(draft))],
        )


class DropsATokenForItsValue(SamplingDrafter):
    """Ends its draft before the first 0 that it drew."""

    def draft(self, context: Sequence[int], limit: Limit, sampler: Sampler, randomness: Randomness) -> Draft:
        draft = super().draft(context, limit, sampler, randomness)
        assert draft.probs is not None
        kept = (*draft.token_ids, 0).index(0)
        return Draft(draft.token_ids[:kept], draft.probs[:kept])


FAULTS: dict[str, tuple[Rule, type[Distributions], Drafter]] = {
    "no residual": (without_residual, Distributions, DRAFTERS["another model"]),
    "swapped ratio": (with_swapped_ratio, Distributions, DRAFTERS["another model"]),
    "softmax of a guess": (with_softmax_of_the_guess, Distributions, DRAFTERS["a deterministic guess"]),
    "filter at the last position": (verify, FilteredAtTheLastPosition, DRAFTERS["another model"]),
    "other probabilities stored": (
        verify,
        Distributions,
        StoresOtherProbs(TabularModel.random(3, 2, seed=2)),
    ),
    "a token dropped": (verify, Distributions, DropsATokenForItsValue(TabularModel.random(3, 2, seed=2))),
}


@pytest.mark.parametrize(("rule", "distributions", "drafter"), FAULTS.values(), ids=FAULTS)
def test_faults_are_seen(
    rule: Rule, distributions: type[Distributions], drafter: Drafter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RULES, "auto", rule)
    monkeypatch.setattr(loop, "Distributions", distributions)
    sampling = SamplingParams(1.0, top_p=0.8)
    law = law_of_generate(target(3), PROMPT, 3, drafter=drafter, sampling=sampling, num_draft_tokens=2)
    assert sum(law.values()) == pytest.approx(1, abs=1e-12)
    assert distance(law, law_of_target(target(3), PROMPT, 3, sampling)) > 1e-2
