"""Lenience: off unless asked for by name, then lossy within a bound (2211.17192, A.5)."""

import numpy as np
import pytest

from draftwise.decoding import generate
from draftwise.drafters.draft_model import DraftModel
from draftwise.errors import OptionError
from draftwise.models.tabular import TabularModel
from draftwise.randomness import Streams
from draftwise.sampling import SamplingParams
from draftwise.theory import acceptance_rate
from draftwise.types import Draft, Probs
from draftwise.verification import LENIENT, RULES, find_rule, residual
from tests.enumeration import Law, distance, enumerate_outcomes, law_of_generate, law_of_target

SAMPLED = SamplingParams(1.0)
LENIENCES = [1.0, 0.7, 0.5, 0.3, 0.1]


def pair(seed: int, vocab_size: int = 4) -> tuple[Probs, Probs]:
    """A target's and a draft model's distribution; one token of each is impossible."""
    p, q = np.random.default_rng(seed).dirichlet(np.full(vocab_size, 0.7), 2)
    p[seed % vocab_size] = q[(seed // 2) % vocab_size] = 0
    return p / p.sum(), q / q.sum()


def law_of_first_token(p: Probs, q: Probs, lenience: float) -> Probs:
    rule = find_rule(LENIENT, lenience)

    def run(streams: Streams) -> int:
        draft = Draft((streams.drafting.sample(q),), (q,))
        verdict = rule(draft, [p, p], streams.acceptance, streams.recovery)
        return draft.token_ids[0] if verdict.path else verdict.token_id

    law = enumerate_outcomes(run)
    return np.array([law.get(token_id, 0.0) for token_id in range(len(p))])


@pytest.mark.parametrize("lenience", LENIENCES)
@pytest.mark.parametrize("seed", range(12))
def test_no_token_is_likelier_than_the_bound(seed: int, lenience: float) -> None:
    p, q = pair(seed)
    law = law_of_first_token(p, q, lenience)
    assert (law <= p / lenience + 1e-12).all()
    accepted = np.minimum(p / lenience, q)
    assert accepted.sum() == pytest.approx(acceptance_rate(p, q, lenience))
    np.testing.assert_allclose(law, accepted + (1 - accepted.sum()) * residual(p, q), atol=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_the_residual_keeps_the_output_nearest_to_the_target(seed: int) -> None:
    """What is accepted cannot be taken back; nothing is added where there is too much already."""
    p, q = pair(seed)
    law = law_of_first_token(p, q, 0.3)
    accepted = np.minimum(p / 0.3, q)
    least = np.maximum(accepted - p, 0).sum()
    assert np.abs(law - p).sum() / 2 == pytest.approx(least)


@pytest.mark.parametrize("lenience", [0.8, 0.4])
def test_the_bound_holds_through_generate(lenience: float) -> None:
    target, drafter = TabularModel.random(3, 2, seed=1), DraftModel(TabularModel.random(3, 2, seed=2))
    law = law_of_generate(
        target,
        (0, 1),
        3,
        drafter=drafter,
        sampling=SAMPLED,
        num_draft_tokens=2,
        verification=LENIENT,
        lenience=lenience,
    )
    exact = law_of_target(target, (0, 1), 3, SAMPLED)
    assert sum(law.values()) == pytest.approx(1)
    assert all(probability <= exact[tokens] / lenience**3 + 1e-12 for tokens, probability in law.items())
    assert distance(law, exact) > 1e-3


@pytest.mark.parametrize("sampling", [SAMPLED, SamplingParams()])
def test_a_lenience_of_one_is_exact(sampling: SamplingParams) -> None:
    assert distance(*laws(sampling, 1.0)) < 1e-12


def test_greedy_output_stays_the_targets() -> None:
    assert distance(*laws(SamplingParams(), 0.1)) < 1e-12


def laws(sampling: SamplingParams, lenience: float) -> tuple[Law, Law]:
    target, drafter = TabularModel.random(3, 2, seed=1), DraftModel(TabularModel.random(3, 2, seed=2))
    options = {"drafter": drafter, "sampling": sampling, "num_draft_tokens": 2}
    law = law_of_generate(target, (0, 1), 2, **options, verification=LENIENT, lenience=lenience)
    return law, law_of_target(target, (0, 1), 2, sampling)


@pytest.mark.parametrize("rule", RULES)
def test_no_other_rule_is_lenient(rule: str) -> None:
    with pytest.raises(OptionError, match='ask for that by name, with verification "lenient"'):
        generate(TabularModel.random(3), [0], verification=rule, lenience=0.5)


@pytest.mark.parametrize("lenience", [0.0, -1.0, 1.5, float("nan")])
def test_out_of_range(lenience: float) -> None:
    with pytest.raises(OptionError, match="lenience is"):
        find_rule(LENIENT, lenience)


def test_it_is_named_among_the_rules() -> None:
    with pytest.raises(OptionError, match="coupled, lenient"):
        find_rule("oracle")
