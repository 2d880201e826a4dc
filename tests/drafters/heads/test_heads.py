"""Heads draft what their papers' equations say, and change nothing of what the target says."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from draftwise.decoding import generate
from draftwise.drafters.growth import DynamicTree, StaticTree
from draftwise.drafters.heads import calibrated_tree, load_heads
from draftwise.drafters.heads.calibration import head_accuracies
from draftwise.errors import OptionError, UnsupportedError
from draftwise.models.torch import TorchModel
from draftwise.sampling import SamplingParams
from tests.drafters.heads import published
from tests.drafters.heads.published import METHODS, VOCAB_SIZE
from tests.drafters.heads.recording import Recording, assert_drafts_are_as_stated
from tests.drafters.heads.statements import stated_logits
from tests.drafters.heads.training import trained
from tests.models.tiny import one_thread  # noqa: F401

PROMPT = [int(token) for token in np.random.default_rng(5).integers(0, VOCAB_SIZE, 9)]
NUM_TOKENS = 40
SAMPLED = SamplingParams(temperature=1.0)
every_method = pytest.mark.parametrize("method", METHODS)


@dataclass(frozen=True)
class Learned:
    """A trained checkpoint."""

    method: str
    weights: dict[str, torch.Tensor]
    folder: Path


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return published.target()


@pytest.fixture(scope="module")
def target(model: PreTrainedModel) -> TorchModel:
    return TorchModel(model, name="tiny")


@pytest.fixture(scope="module")
def plain(target: TorchModel) -> tuple[int, ...]:
    """What the target says by itself."""
    return generate(target, PROMPT, max_new_tokens=NUM_TOKENS).token_ids


@pytest.fixture(scope="module", params=METHODS)
def learned(
    request: pytest.FixtureRequest,
    model: PreTrainedModel,
    plain: tuple[int, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Learned:
    """A checkpoint of each method, trained on the target's own text."""
    config, weights = METHODS[request.param]()
    weights = trained(request.param, weights, model, [*PROMPT, *plain])
    folder = published.save(tmp_path_factory.mktemp(request.param), request.param, config, weights)
    return Learned(request.param, weights, folder)


@every_method
@pytest.mark.parametrize("sampling", [SAMPLED, SamplingParams()], ids=["sampled", "greedy"])
def test_drafts_are_those_of_the_equations(
    method: str, sampling: SamplingParams, model: PreTrainedModel, target: TorchModel, tmp_path: Path
) -> None:
    """Of random heads, all along a text, whatever was accepted and rejected before."""
    config, weights = METHODS[method]()
    drafter = Recording(load_heads(published.save(tmp_path, method, config, weights), target))
    generate(
        target, PROMPT, drafter=drafter, sampling=sampling, max_new_tokens=30, num_draft_tokens=3, seed=4
    )
    assert len([draft for _, draft in drafter.drafts if len(draft) == 3]) > 5
    assert (drafter.drafts[5][1].probs is None) == (
        sampling.temperature == 0 or method in ("medusa", "blockwise")
    )
    assert_drafts_are_as_stated(method, weights, model, drafter.drafts)


def test_heads_that_guess_right(
    learned: Learned, plain: tuple[int, ...], model: PreTrainedModel, target: TorchModel
) -> None:
    """Trained on the target's own text, they save passes, and change nothing of it."""
    drafter = Recording(load_heads(learned.folder, target))
    for num_draft_tokens in (None, 1, 3):
        generation = generate(
            target, PROMPT, drafter=drafter, max_new_tokens=NUM_TOKENS, num_draft_tokens=num_draft_tokens
        )
        assert generation.token_ids == plain
        assert generation.acceptance_rate is not None
        assert generation.acceptance_rate > 0.25
    assert 3 in {step.num_accepted for step in generation.steps}
    assert_drafts_are_as_stated(learned.method, learned.weights, model, drafter.drafts)


@every_method
def test_trees_hold_the_likeliest_tokens_of_the_equations(
    method: str, model: PreTrainedModel, target: TorchModel, tmp_path: Path
) -> None:
    """After each path of a tree the likeliest tokens that a head says come next, in order."""
    config, weights = METHODS[method]()
    folder = published.save(tmp_path, method, config, weights)
    drafter = Recording(load_heads(folder, target, tree=StaticTree.branching(8, 2)))
    generation = generate(
        target, PROMPT, drafter=drafter, num_draft_tokens=None, sampling=SAMPLED, max_new_tokens=60, seed=1
    )
    drafts = [(context, draft) for context, draft in drafter.drafts[:24] if len(draft) == 24]
    assert len(drafts) > 5
    # Some go on from a path whose tokens were not the first ones fed.
    assert any(step.path and step.path[0] > 0 for step in generation.steps[: len(drafts)])
    for context, draft in drafts:
        assert draft.probs is None
        paths: dict[int, list[int]] = {-1: []}
        for node, (token_id, parent) in enumerate(zip(draft.token_ids, draft.parents or (), strict=True)):
            paths[node] = [*paths[parent], token_id]
        for node, children in enumerate(draft.children(), -1):
            if children:
                with torch.inference_mode():
                    logits = stated_logits(method, weights, model, context, [*paths[node], 0])[-1]
                likeliest = logits.topk(len(children)).indices.tolist()
                assert [draft.token_ids[child] for child in children] == likeliest


def test_dynamic_trees_save_passes_and_change_nothing(
    learned: Learned, plain: tuple[int, ...], target: TorchModel
) -> None:
    drafter = load_heads(learned.folder, target, tree=DynamicTree(12, width=4, depth=3))
    generation = generate(target, PROMPT, drafter=drafter, num_draft_tokens=None, max_new_tokens=NUM_TOKENS)
    assert generation.token_ids == plain
    assert generation.target_passes < 25


@pytest.mark.parametrize("method", ["medusa", "blockwise"])
def test_calibrated_trees(
    method: str, plain: tuple[int, ...], model: PreTrainedModel, target: TorchModel, tmp_path: Path
) -> None:
    """They hold the guesses that were right most often, and accept more than a chain."""
    text = [*PROMPT, *plain]
    config, weights = METHODS[method]()
    weights = trained(method, weights, model, text[:20])
    folder = published.save(tmp_path, method, config, weights)
    heads = load_heads(folder, target)
    accuracies = head_accuracies(heads, [text, text[:12]], num_ranks=3)
    num_heads = len(accuracies)
    right: list[list[list[bool]]] = [[] for _ in range(num_heads)]
    for part in (text, text[:12]):
        for end in range(2, len(part)):
            stated = stated_logits(method, weights, model, part[:end], [0] * num_heads)
            for head, following in enumerate(part[end : end + num_heads]):
                right[head].append((stated[head].topk(3).indices == following).tolist())
    np.testing.assert_allclose(accuracies, [np.mean(each, axis=0) for each in right], atol=1e-9)
    with_tree = load_heads(folder, target, tree=calibrated_tree(heads, [text], 12))
    passes = [
        generate(target, PROMPT, drafter=each, num_draft_tokens=None, max_new_tokens=NUM_TOKENS).target_passes
        for each in (heads, with_tree)
    ]
    assert passes[1] < passes[0]
    with pytest.raises(OptionError, match="give longer ones"):
        calibrated_tree(heads, [text[:2]])
    eagle = load_heads(published.save(tmp_path / "eagle", "eagle", *published.eagle()), target)
    with pytest.raises(UnsupportedError, match="no head for each position"):
        calibrated_tree(eagle, [text])
