"""Coupled verification: with one seed, the same text with and without drafts, whatever the drafter."""

from collections.abc import Callable

import pytest

from draftwise.decoding import generate
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.ngram import NgramModel
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.models.base import LanguageModel
from draftwise.models.tabular import TabularModel
from draftwise.sampling import SamplingParams
from draftwise.types import Generation
from draftwise.verification import RULES, recursive_rejection
from tests.fakes import GuessingDrafter, SamplingDrafter
from tests.test_sampled_law import ANOTHER_MODEL, p_value

PROMPT = [1, 2, 3]
SAMPLINGS = [SamplingParams(1.0), SamplingParams(0.7, top_p=0.8), SamplingParams(3.0), SamplingParams()]
every_sampling = pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)

DRAFTERS: dict[str, Callable[[LanguageModel], Drafter]] = {
    "the target itself": DraftModel,
    "lookup": lambda target: PromptLookup(draft_lengths=[(1, 4)]),
    "counts": lambda target: NgramModel.count([PROMPT * 5], target.vocab_size, order=2).drafter(),
    "guesses": lambda target: GuessingDrafter(lambda context: [(context[-1] + n) % 5 for n in range(6)]),
}
TABULAR: dict[str, Callable[[LanguageModel], Drafter]] = {
    **DRAFTERS,
    "another model": lambda target: DraftModel(TabularModel.random(5, 2, seed=2)),
    "a narrower one": lambda target: DraftModel(TabularModel.random(3, 2, seed=2)),
    "a wider one": lambda target: DraftModel(TabularModel.random(8, 2, seed=2)),
    "another temperature": lambda target: SamplingDrafter(
        TabularModel.random(5, 2, seed=2), sampling=SamplingParams(2.0)
    ),
}
TARGET = TabularModel.random(5, 2, seed=1)


def coupled(
    target: LanguageModel,
    drafter: Drafter | None,
    sampling: SamplingParams,
    seed: int,
    num_draft_tokens: int = 3,
) -> Generation:
    return generate(
        target,
        PROMPT,
        drafter=drafter,
        sampling=sampling,
        max_new_tokens=60,
        num_draft_tokens=num_draft_tokens,
        verification="coupled",
        seed=seed,
    )


@every_sampling
@pytest.mark.parametrize("name", TABULAR)
def test_drafts_do_not_change_the_text(name: str, sampling: SamplingParams) -> None:
    for seed in range(5):
        plain = coupled(TARGET, None, sampling, seed)
        for num_draft_tokens in (1, 3, 8):
            drafted = coupled(
                TARGET, TABULAR[name](TARGET), sampling, seed, num_draft_tokens=num_draft_tokens
            )
            assert drafted.token_ids == plain.token_ids
            assert drafted.target_passes <= plain.target_passes
    assert (
        coupled(TARGET, None, SAMPLINGS[0], 0).token_ids != coupled(TARGET, None, SAMPLINGS[0], 1).token_ids
    )


def test_whoever_has_the_targets_distributions_guesses_every_token() -> None:
    result = coupled(TARGET, DraftModel(TARGET), SamplingParams(1.0), 0)
    assert result.acceptance_rate == 1


def test_shared_noise_is_what_makes_guesses_match() -> None:
    """Without it a draw of each matches with probability Σ p q; with it by far more often."""
    sampling, draft_model = SamplingParams(1.0), DraftModel(TabularModel.random(5, 2, seed=2))

    def rate(verification: str) -> float:
        steps = [
            step
            for seed in range(30)
            for step in generate(
                TARGET,
                PROMPT,
                drafter=draft_model,
                num_draft_tokens=None,
                sampling=sampling,
                max_new_tokens=60,
                verification=verification,
                seed=seed,
            ).steps
        ]
        return sum(step.num_accepted for step in steps) / sum(step.num_verified for step in steps)

    assert rate("coupled") > rate("matching") + 0.1


def test_the_law_is_the_targets() -> None:
    assert p_value(ANOTHER_MODEL, verification="coupled") > 1e-4


def test_a_rule_that_tests_a_ratio_with_shared_noise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "coupled", recursive_rejection)
    assert p_value(ANOTHER_MODEL, verification="coupled") < 1e-9
