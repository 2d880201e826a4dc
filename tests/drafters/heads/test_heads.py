"""Heads draft what their papers' equations say, and change nothing of what the target says."""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor
from transformers import PreTrainedModel

from draftwise.control.base import Limit
from draftwise.control.fixed import Fixed
from draftwise.decoding import generate, step
from draftwise.drafters.base import Drafter, DraftState
from draftwise.drafters.growth import DynamicTree, StaticTree
from draftwise.drafters.heads import load_heads
from draftwise.models.base import LanguageModel, Tap
from draftwise.models.torch import TorchModel
from draftwise.randomness import Randomness, Streams
from draftwise.sampling import Sampler, SamplingParams
from draftwise.sequence import Sequence as Row
from draftwise.sequence import StopConditions
from draftwise.types import Draft, Probs, Source, Step, Verdict
from draftwise.verification import Rule, verify
from tests.drafters.heads import published, statements
from tests.drafters.heads.published import METHODS, VOCAB_SIZE
from tests.drafters.heads.training import trained
from tests.models.tiny import one_thread  # noqa: F401

PROMPT = [int(token) for token in np.random.default_rng(5).integers(0, VOCAB_SIZE, 9)]
SAMPLED = SamplingParams(temperature=1.0)
every_method = pytest.mark.parametrize("method", METHODS)


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return published.target()


@pytest.fixture(scope="module")
def target(model: PreTrainedModel) -> TorchModel:
    return TorchModel(model, name="tiny")


def hidden_states(model: PreTrainedModel, tokens: Sequence[int]) -> list[Tensor]:
    with torch.inference_mode():
        output = model(torch.tensor([list(tokens)]), output_hidden_states=True, use_cache=False)
    return [hidden[0] for hidden in output.hidden_states]


def stated_logits(
    method: str,
    weights: dict[str, Tensor],
    model: PreTrainedModel,
    context: Sequence[int],
    drafted: Sequence[int],
) -> Tensor:
    """What a head has to say at each position of a draft that follows `context`, from scratch."""
    hidden = hidden_states(model, context[:-1])  # the target has not read the last token
    if method == "medusa":
        return statements.medusa(weights, hidden[-1][-1:])[0, : len(drafted)]
    if method == "blockwise":
        return statements.blockwise(weights, hidden[-1][-1:], model)[0, : len(drafted)]
    if method == "dflash":
        features = torch.cat([hidden[number + 1] for number in published.DFLASH_LAYERS], -1)
        size, mask = published.BLOCK_SIZE, published.MASK_TOKEN
        return statements.dflash(weights, features, context[-1], size, mask, model)[: len(drafted)]
    num_layers = published.NUM_LAYERS
    states = (
        hidden[-1]
        if method == "eagle"
        else torch.cat([hidden[2], hidden[num_layers // 2], hidden[num_layers - 3]], -1)
        @ weights["fc.weight"].T
    )
    logits = []
    tokens = list(context[1:])
    for token in drafted:
        if method == "eagle":
            made = statements.eagle(weights, torch.tensor(tokens), states)[-1:]
            logits.append(made @ model.lm_head.weight.T)
        else:
            made = statements.eagle3(weights, torch.tensor(tokens), states, model)[-1:]
            logits.append(statements.eagle3_logits(weights, made, VOCAB_SIZE))
        states = torch.cat([states, made])
        tokens.append(token)
    return torch.cat(logits)


class Recording:
    """Remembers every draft of a drafter, and the context that it was made for."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self.name = drafter.name
        self.default_num_draft_tokens = drafter.default_num_draft_tokens
        self.drafts: list[tuple[list[int], Draft]] = []

    def open(self, target: LanguageModel, num_sequences: int, max_length: int) -> "RecordingState":
        return RecordingState(self._drafter.open(target, num_sequences, max_length), self.drafts)


class RecordingState:
    def __init__(self, state: DraftState, drafts: list[tuple[list[int], Draft]]) -> None:
        self._state = state
        self._drafts = drafts
        self.taps: Sequence[Tap] = state.taps

    def begin(self, row: int, source: Source | None) -> None:
        self._state.begin(row, source)

    def confidence(self, row: int, context: Sequence[int]) -> float | None:
        return self._state.confidence(row, context)

    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[Limit],
        samplers: Sequence[Sampler],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        drafts = self._state.propose(contexts, limits, samplers, randomness)
        self._drafts += [(list(context), draft) for context, draft in zip(contexts, drafts, strict=True)]
        return drafts

    def observe(self, step: Step) -> None:
        self._state.observe(step)

    def close(self) -> None:
        self._state.close()


def assert_drafts_are_as_stated(
    method: str, weights: dict[str, Tensor], model: PreTrainedModel, drafts: list[tuple[list[int], Draft]]
) -> None:
    for context, draft in drafts:
        if not draft.token_ids:
            continue
        with torch.inference_mode():
            logits = stated_logits(method, weights, model, context, draft.token_ids)
        if draft.probs is None:
            assert list(draft.token_ids) == logits.argmax(-1).tolist()
        else:
            np.testing.assert_allclose(np.array(draft.probs), logits.softmax(-1), rtol=0, atol=3e-4)


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


@every_method
def test_heads_that_guess_right(
    method: str, model: PreTrainedModel, target: TorchModel, tmp_path: Path
) -> None:
    """Trained on the target's own text, they save passes, and change nothing of it."""
    plain = generate(target, PROMPT, max_new_tokens=40).token_ids
    config, weights = METHODS[method]()
    weights = trained(method, weights, model, [*PROMPT, *plain])
    drafter = Recording(load_heads(published.save(tmp_path, method, config, weights), target))
    for num_draft_tokens in (None, 1, 3):
        generation = generate(
            target, PROMPT, drafter=drafter, max_new_tokens=40, num_draft_tokens=num_draft_tokens
        )
        assert generation.token_ids == plain
        assert generation.acceptance_rate is not None
        assert generation.acceptance_rate > 0.25
    assert 3 in {step.num_accepted for step in generation.steps}
    assert_drafts_are_as_stated(method, weights, model, drafter.drafts)


@every_method
def test_rows_of_a_batch_draft_as_they_do_alone(method: str, target: TorchModel, tmp_path: Path) -> None:
    """Of different lengths and budgets, with one that may not draft: what each is fed is its own."""
    config, weights = METHODS[method]()
    drafter = load_heads(published.save(tmp_path, method, config, weights), target)
    prompts = [PROMPT[: 2 + 3 * row] for row in range(3)]
    alone = [play(target, drafter, [prompt], [row], 4 + 6 * row) for row, prompt in enumerate(prompts)]
    together = play(target, drafter, prompts, range(3), 4, 10, 16)
    assert together == [text for (text,) in alone]


def play(
    target: TorchModel,
    drafter: Drafter,
    prompts: Sequence[Sequence[int]],
    seeds: Sequence[int],
    *budgets: int,
    rule: Rule = verify,
) -> list[tuple[int, ...]]:
    """Generate at temperature 1, all prompts in one batch; the last budget is that of all the rest."""
    rows = [
        Row(
            prompt,
            StopConditions(budgets[min(row, len(budgets) - 1)]),
            Sampler(SAMPLED),
            Streams.seeded(seed),
            None,
            rule,
        )
        for row, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True))
    ]
    max_length = max(len(row.token_ids) + row.budget for row in rows)
    with (
        closing(drafter.open(target, len(rows), max_length)) as drafting,
        closing(target.open(len(rows), max_length, taps=drafting.taps)) as cache,
    ):
        while not all(row.finish_reason for row in rows):
            step(cache, drafting, Fixed(3), rows)
    return [tuple(row.token_ids[row.num_prompt_tokens :]) for row in rows]


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


@every_method
def test_dynamic_trees_save_passes_and_change_nothing(
    method: str, model: PreTrainedModel, target: TorchModel, tmp_path: Path
) -> None:
    plain = generate(target, PROMPT, max_new_tokens=40).token_ids
    config, weights = METHODS[method]()
    weights = trained(method, weights, model, [*PROMPT, *plain])
    folder = published.save(tmp_path, method, config, weights)
    passes = []
    for tree in (None, DynamicTree(12, width=4, depth=3)):
        drafter = load_heads(folder, target, tree=tree)
        generation = generate(target, PROMPT, drafter=drafter, num_draft_tokens=None, max_new_tokens=40)
        assert generation.token_ids == plain
        passes.append(generation.target_passes)
    assert passes[1] < 25
    prompts = [PROMPT, PROMPT[:4]]
    alone = [play(target, drafter, [prompt], [row], 12) for row, prompt in enumerate(prompts)]
    assert play(target, drafter, prompts, [0, 1], 12) == [text for (text,) in alone]


SMALL = 5  # vocabulary of the target whose joint law is counted
NUM_ROWS = 800
SHARPENED = {
    "eagle": "layers.0.mlp.down_proj.weight",
    "eagle3": "norm.weight",
    "dflash": "norm.weight",
}


@pytest.fixture(scope="module")
def small() -> TorchModel:
    model = published.target(SMALL, seed=8)
    with torch.no_grad():
        model.lm_head.weight *= 0.3  # any token may follow
    return TorchModel(model, name="small")


def p_value(target: TorchModel, drafter: Drafter, rule: Rule = verify) -> float:
    """Of the counts of the three tokens that follow a prompt, against the law of the target alone."""
    prompt = (1, 2, 0)
    counts = Counter(play(target, drafter, [prompt] * NUM_ROWS, range(NUM_ROWS), 3, rule=rule))
    texts = list(product(range(SMALL), repeat=3))
    with torch.inference_mode():
        logits = target.model(torch.tensor([[*prompt, *text] for text in texts])).logits.double()
    ahead = logits[:, len(prompt) - 1 : -1].log_softmax(-1).gather(2, torch.tensor(texts)[..., None])
    law = ahead[..., 0].sum(1).exp().numpy()
    expected, observed = NUM_ROWS * law, np.array([counts[text] for text in texts])
    rare = expected < 5
    cells = [np.append(each[~rare], each[rare].sum()) for each in (observed, expected)]
    return float(chisquare(*cells).pvalue)


def without_residual(
    draft: Draft, target_probs: Sequence[Probs], acceptance: Randomness, recovery: Randomness
) -> Verdict:
    """Token-wise acceptance that puts the target's own distribution in the place of the residual."""
    for index, token_id in enumerate(draft.token_ids):
        drawn_with = 1.0 if draft.probs is None else draft.probs[index][token_id]
        if not acceptance.accept(float(target_probs[index][token_id] / drawn_with)):
            return Verdict(tuple(range(index)), recovery.sample(target_probs[index]))
    return Verdict(tuple(range(len(draft))), recovery.sample(target_probs[len(draft)]))


@every_method
def test_joint_counts_are_the_targets(method: str, small: TorchModel, tmp_path: Path) -> None:
    """And a verifier with a mistake is seen, so that the counts say something."""
    config, weights = METHODS[method](SMALL)
    if method in SHARPENED:  # guesses that differ much from what the target says
        weights[SHARPENED[method]] *= 8
    drafter = load_heads(published.save(tmp_path, method, config, weights), small)
    assert p_value(small, drafter) > 1e-3
    assert p_value(small, drafter, without_residual) < 1e-4
    if method == "eagle":  # trees of the others are made the same way
        drafter = load_heads(tmp_path, small, tree=DynamicTree(3, width=2, depth=2))
        assert p_value(small, drafter) > 1e-3
