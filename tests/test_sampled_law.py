"""Joint counts of what `generate` emits with its own random numbers, against the target's exact law."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import chisquare

from draftwise import decoding
from draftwise.control.adaptive import Adaptive
from draftwise.control.cost import CostModel
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.growth import DynamicTree, StaticTree
from draftwise.drafters.ngram import NgramModel
from draftwise.drafters.none import NoDrafter
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.drafters.tree import TreeDraftModel
from draftwise.models.tabular import TabularModel
from draftwise.randomness import RandomStream, Streams
from draftwise.sampling import SamplingParams
from draftwise.verification import RULES, Rule
from tests.enumeration import law_of_target
from tests.fakes import GuessingDrafter, SamplingDrafter
from tests.test_joint_law import with_swapped_ratio, without_residual

PROMPT = (0, 1, 2, 0, 1)
TARGET = TabularModel.random(4, 2, seed=1)
SAMPLING = SamplingParams(1.0, top_p=0.9)
NUM_RUNS = 2000
ANOTHER_MODEL = SamplingDrafter(TabularModel.random(4, 2, seed=2))
DYNAMIC_TREE = TreeDraftModel(TabularModel.random(4, 2, seed=1), DynamicTree(4, width=2, depth=2))
DRAWN_TREE = TreeDraftModel(TabularModel.random(4, 2, seed=1), StaticTree.branching(2, 1), sampled=True)
DRAFTERS: dict[str, Drafter] = {
    "none": NoDrafter(),
    "another model": ANOTHER_MODEL,
    "a deterministic guess": GuessingDrafter(lambda context: [(context[-1] + n) % 4 for n in (1, 2)]),
    "a draft model": DraftModel(TabularModel.random(4, 2, seed=2)),
    "an n-gram model": NgramModel.count([[0, 1, 2, 3, 0, 2, 1, 3, 3, 0, 1]], vocab_size=4).drafter(),
    "prompt lookup": PromptLookup(),
}


def constant() -> int:
    return 2


def adaptive() -> Adaptive:
    """A controller that knows nothing yet, for a drafter that costs a tenth of a pass."""
    verify = {n: 1 + 0.05 * n for n in range(1, 8)}
    return Adaptive(CostModel(lambda context: verify, [lambda context: {1: 0.1, 8: 0.8}], constant=True))


def p_value(
    drafter: Drafter, verification: str = "auto", controller: Callable[[], int | Adaptive] = constant
) -> float:
    """How likely counts of three tokens, at least this far from the target's law, are under that law."""
    counts = Counter(
        decoding.generate(
            TARGET,
            PROMPT,
            drafter=drafter,
            sampling=SAMPLING,
            max_new_tokens=3,
            num_draft_tokens=controller(),
            verification=verification,
            seed=seed,
        ).token_ids
        for seed in range(NUM_RUNS)
    )
    law = law_of_target(TARGET, PROMPT, 3, SAMPLING)
    if counts.keys() - law.keys():
        return 0.0  # something impossible came
    expected = NUM_RUNS * np.array(list(law.values()))
    observed = np.array([counts[tokens] for tokens in law])
    assert expected.min() > 5  # few enough cells for the approximation to hold
    return float(chisquare(observed, expected).pvalue)


@pytest.mark.parametrize("drafter", DRAFTERS.values(), ids=DRAFTERS)
def test_counts_agree_with_the_law_of_the_target(drafter: Drafter) -> None:
    assert p_value(drafter) > 1e-4


@pytest.mark.parametrize(
    "drafter",
    [ANOTHER_MODEL, PromptLookup(), DYNAMIC_TREE, DRAWN_TREE],
    ids=["another model", "prompt lookup", "a dynamic tree", "a drawn tree"],
)
def test_counts_agree_with_an_adaptive_controller(drafter: Drafter) -> None:
    drafts = [
        step.drafted
        for step in decoding.stream(TARGET, PROMPT, drafter=drafter, num_draft_tokens=adaptive(), seed=0)
    ]
    assert any(drafts)
    assert p_value(drafter, controller=adaptive) > 1e-4


@pytest.mark.parametrize(
    ("broken", "controller"),
    [(without_residual, constant), (with_swapped_ratio, constant), (without_residual, adaptive)],
)
def test_a_wrong_rule_is_seen(
    broken: Rule, controller: Callable[[], int | Adaptive], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RULES, "auto", broken)
    assert p_value(ANOTHER_MODEL, controller=controller) < 1e-9


def streams_of(seed: int, drafting: int, acceptance: int, recovery: int) -> Streams:
    """Three streams, of which those with the same number make the same noise."""
    seeds = np.random.SeedSequence(seed).spawn(3)
    return Streams(
        RandomStream(seeds[drafting]), RandomStream(seeds[acceptance]), RandomStream(seeds[recovery])
    )


@pytest.mark.parametrize("shared", [(0, 0, 1), (0, 1, 0), (0, 1, 1)])
def test_streams_that_share_their_noise_are_seen(
    shared: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Streams, "seeded", lambda seed: streams_of(seed, *shared))
    assert p_value(ANOTHER_MODEL) < 1e-9
