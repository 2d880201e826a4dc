"""Trees on the PyTorch engine: greedy output is that of transformers, sampled output has the target's law."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from draftwise.control.fixed import Fixed
from draftwise.decoding import generate
from draftwise.drafters.base import Drafter
from draftwise.drafters.growth import DynamicTree, StaticTree
from draftwise.drafters.tree import TreeDraftModel
from draftwise.loop import step
from draftwise.models.torch import TorchModel, engine
from draftwise.randomness import Streams
from draftwise.sampling import Sampler, SamplingParams, adjusted_probs
from draftwise.sequence import Sequence as Row
from draftwise.sequence import StopConditions
from draftwise.types import Probs
from draftwise.verification import find_rule, rejection
from tests.models import tiny
from tests.models.conformance import path_to
from tests.models.tiny import one_thread  # noqa: F401
from tests.test_greedy_equality import MAX_NEW_TOKENS, PROMPT, Pair

ARCHITECTURES = ["llama", "gpt2", "gemma2", "gemma3"]
SHAPES: dict[str, Callable[[Pair], Drafter]] = {
    "of itself": lambda pair: TreeDraftModel(pair.target, DynamicTree(9, width=3, depth=4)),
    "of another": lambda pair: TreeDraftModel(pair.draft, DynamicTree(9, width=3, depth=4)),
    "static": lambda pair: TreeDraftModel(related(pair.target, 0.03), StaticTree.branching(3, 2, 1)),
}


def related(target: TorchModel, noise: float) -> TorchModel:
    """The target with noise on its weights: often right, often wrong."""
    model = type(target.model)(target.model.config)
    model.load_state_dict(target.model.state_dict())
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in model.parameters():
            weights += noise * torch.randn(weights.shape, generator=generator)
    return TorchModel(model)


@pytest.fixture(scope="module", params=ARCHITECTURES)
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(request.param)


@pytest.mark.parametrize("shape", SHAPES)
def test_greedy_output_is_that_of_transformers(pair: Pair, shape: str) -> None:
    result = generate(
        pair.target, PROMPT, drafter=SHAPES[shape](pair), num_draft_tokens=None, max_new_tokens=MAX_NEW_TOKENS
    )
    assert result.token_ids == pair.expected
    if shape == "of itself":
        assert result.target_passes < MAX_NEW_TOKENS / 2
    if shape == "static":
        assert len({done.path for done in result.steps}) > 3  # other branches than the first, too


SAMPLING = SamplingParams(1.0, top_k=3)
NUM_RUNS = 1000


@pytest.fixture(scope="module")
def target() -> TorchModel:
    return TorchModel(tiny.llama())


def p_value(target: TorchModel, drafter: Drafter, verification: str) -> float:
    """Of the joint counts of two tokens, over rows that share their passes."""
    rule = find_rule(verification)
    rows = [
        Row(PROMPT, StopConditions(7), Sampler(SAMPLING), Streams.seeded(seed), None, rule)
        for seed in range(NUM_RUNS)
    ]
    with (
        closing(drafter.open(target, NUM_RUNS, len(PROMPT) + 7)) as drafting,
        closing(target.open(NUM_RUNS, len(PROMPT) + 7)) as cache,
    ):
        while any(len(row.token_ids) < len(PROMPT) + 2 for row in rows):
            step(cache, drafting, Fixed(6), rows)
    counts = Counter(tuple(row.token_ids[len(PROMPT) :][:2]) for row in rows)
    law: dict[tuple[int, ...], float] = {}
    first = next_probs(target, [])
    for one in np.flatnonzero(first):
        second = next_probs(target, [int(one)])
        law.update({(int(one), int(two)): first[one] * second[two] for two in np.flatnonzero(second)})
    assert counts.keys() <= law.keys()
    expected = NUM_RUNS * np.array(list(law.values()), np.float64)
    return float(chisquare([counts[tokens] for tokens in law], expected * NUM_RUNS / expected.sum()).pvalue)


def next_probs(target: TorchModel, tokens: list[int]) -> Probs:
    (logits,) = target.open(1, 100).forward([[*PROMPT, *tokens]], [1])
    return adjusted_probs(logits[-1], SAMPLING)


DRAWN = StaticTree.branching(2, 2)


@pytest.mark.parametrize("verification", ["auto", "recursive"])
@pytest.mark.parametrize("sampled", [True, False], ids=["drawn", "likeliest"])
def test_counts_agree_with_the_law_of_the_target(
    target: TorchModel, sampled: bool, verification: str
) -> None:
    drafter = TreeDraftModel(related(target, 0.03), DRAWN, sampled=sampled)
    assert p_value(target, drafter, verification) > 1e-4


def test_a_rule_without_a_residual_is_seen(target: TorchModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejection, "residual", lambda target_probs, draft_probs: target_probs)
    drafter = TreeDraftModel(related(target, 0.03), DRAWN, sampled=True)
    assert p_value(target, drafter, "recursive") < 1e-9


def test_a_tree_may_begin_in_any_piece_of_a_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text that is fed before it takes no mask of its own, and pieces may cut both."""
    target = TorchModel(tiny.llama())
    text, tree = list(range(30)), [3, 4, 5, 6, 7, 8]
    parents = [-1, -1, 0, 1, 1, 3]
    below = [*range(-1, 29), *(30 + parent for parent in parents)]
    for width in (512, 31, 7, 4):
        monkeypatch.setattr(engine, "PIECE_WIDTH", width)
        state = target.open(2, 100)
        logits, chain = state.forward([[*text, *tree], text[:11]], [6, 1], [below, None])
        for token in range(6):
            branch = [tree[index] for index in path_to(parents, token)]
            (expected,) = target.open(1, 100).forward([[*text, *branch]], [1])
            np.testing.assert_allclose(logits[token], expected[0], atol=5e-5)
        (expected,) = target.open(1, 100).forward([text[:11]], [1])
        np.testing.assert_allclose(chain, expected, atol=5e-5)
