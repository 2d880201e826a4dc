"""The target's own layers as a drafter, on tiny random decoders of several architectures."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chisquare
from transformers import PreTrainedModel

from draftwise.control.base import UpTo
from draftwise.decoding import generate
from draftwise.drafters.none import NoDrafter
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.drafters.self_speculation import SelfSpeculation
from draftwise.drafters.several import Several
from draftwise.errors import OptionError
from draftwise.models.tabular import TabularModel
from draftwise.models.torch import TorchModel
from draftwise.randomness import Streams
from draftwise.sampling import Sampler, SamplingParams, adjusted_probs
from tests.models.tiny import ARCHITECTURES, llama, one_thread

__all__ = ["one_thread"]
PROMPT = [5, 3, 96, 17, 5, 3, 8, 44, 2]
SAMPLED = SamplingParams(temperature=1.0)
LAYERS = 4
OPTIONS = {
    "exit": {"exit_layer": 2},
    "exit-at-once": {"exit_layer": 0 + 1},
    "skip": {"skip_layers": (1, 2)},
    "skip-first": {"skip_layers": (0,)},
}


@pytest.fixture(scope="module")
def target() -> TorchModel:
    return TorchModel(llama(num_hidden_layers=LAYERS), name="tiny")


every_option = pytest.mark.parametrize("option", OPTIONS)


def drafter(target: TorchModel, option: str) -> SelfSpeculation:
    return SelfSpeculation(target, **OPTIONS[option])  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["exit", "skip"])
def test_the_shallow_model_is_the_model_built_of_those_layers(option: str, target: TorchModel) -> None:
    kept = [0, 1] if option == "exit" else [0, 3]
    weights = target.model.state_dict()
    built = llama(num_hidden_layers=2)
    for number, layer in enumerate(kept):
        for key in list(weights):
            if key.startswith(f"model.layers.{layer}."):
                weights[f"built.{key.replace(f'.{layer}.', f'.{number}.', 1)}"] = weights[key]
    state = {key: weights[f"built.{key}" if ".layers." in key else key] for key in built.state_dict()}
    built.load_state_dict(state)
    (expected,) = TorchModel(built).open(1, 20).forward([PROMPT], [9])
    (logits,) = drafter(target, option).shallow.open(1, 20).forward([PROMPT], [9])
    assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_greedy_output_is_plain_output(name: str) -> None:
    make: Callable[..., PreTrainedModel] = ARCHITECTURES[name]
    target = TorchModel(make())  # two layers
    plain = generate(target, PROMPT, max_new_tokens=24).token_ids
    for own in (SelfSpeculation(target, exit_layer=1), SelfSpeculation(target, skip_layers=[0])):
        assert (
            generate(target, PROMPT, drafter=own, num_draft_tokens=None, max_new_tokens=24).token_ids == plain
        )


@every_option
@pytest.mark.parametrize("num_draft_tokens", [1, 3, 6])
def test_the_shared_cache_stays_the_targets(target: TorchModel, option: str, num_draft_tokens: int) -> None:
    """Greedy tokens and sampled ones are those of a drafter with a cache of its own, or plain ones."""
    own = drafter(target, option)
    plain = generate(target, PROMPT, max_new_tokens=40)
    made = generate(target, PROMPT, drafter=own, max_new_tokens=40, num_draft_tokens=num_draft_tokens)
    assert made.token_ids == plain.token_ids
    assert sum(len(step.drafted) for step in made.steps) > 20


def drafts_of(state: object, contexts: list[list[int]]) -> list[tuple[int, ...]]:
    count = len(contexts)
    random = [Streams.seeded(row).drafting for row in range(count)]
    drafts = state.propose(contexts, [UpTo(3)] * count, [Sampler(SAMPLED)] * count, random)  # type: ignore[attr-defined]
    for draft in drafts:
        assert draft.probs is not None
    return [draft.token_ids for draft in drafts]


@every_option
def test_it_drafts_where_the_targets_cache_ends(target: TorchModel, option: str) -> None:
    """Two rows of different lengths, through acceptance, rejection and an undrafted step."""
    own = drafter(target, option)
    state = own.open(target, 2, 60)
    cache = target.open(2, 60, taps=state.taps)
    contexts = [list(PROMPT), PROMPT[:4]]
    assert [len(draft) for draft in state.propose(contexts, [UpTo(3)] * 2, [Sampler(SAMPLED)] * 2, [])] == [
        0,
        0,
    ]
    assert state.confidence(0, contexts[0]) == 0
    cache.forward([context[:-1] for context in contexts], [1, 1])
    assert state.confidence(0, contexts[0]) is None
    for num_accepted in (0, 3, 1, 2):
        drafts = drafts_of(state, contexts)
        assert [len(draft) for draft in drafts] == [3, 3]
        assert cache.lengths == (len(contexts[0]) - 1, len(contexts[1]) - 1)
        logits = [
            row.copy()
            for row in cache.forward(
                [[context[-1], *draft] for context, draft in zip(contexts, drafts, strict=True)], [4, 4]
            )
        ]
        for row, context in enumerate(contexts):
            fresh = target.open(1, 60).forward([[*context, *drafts[row]]], [4])[0]
            assert_allclose(logits[row], fresh, rtol=1e-4, atol=1e-4)
            context += [*drafts[row][:num_accepted], 7]
            cache.keep(row, len(context) - 1)
    state.close()
    state.close()
    assert cache.lengths == (len(contexts[0]) - 1, len(contexts[1]) - 1)


def test_an_early_exit_gives_the_same_drafts_in_either_cache(target: TorchModel) -> None:
    """The first layers do not see that others follow: keys and values of accepted tokens are the same."""
    own = drafter(target, "exit")
    shared, alone = own.open(target, 1, 60), own.open(target, 1, 60)
    target.open(1, 60, taps=shared.taps).forward([PROMPT[:-1]], [1])
    for sampling in (SamplingParams(), SAMPLED):
        one, other = (
            state.propose([PROMPT], [UpTo(4)], [Sampler(sampling)], [Streams.seeded(0).drafting])[0]
            for state in (shared, alone)
        )
        assert one.token_ids == other.token_ids
        for row, other_row in zip(one.probs or (), other.probs or (), strict=True):
            assert_allclose(row, other_row, rtol=1e-4, atol=1e-6)


def test_joint_counts_are_the_targets() -> None:
    target = TorchModel(llama(num_hidden_layers=2, vocab_size=5, hidden_size=16))
    sampling = SamplingParams(temperature=1.5)
    own = SelfSpeculation(target, exit_layer=1, num_draft_tokens=2)
    prompt, total = [1, 3, 2], 800
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(total):
        made = generate(
            target, prompt, drafter=own, num_draft_tokens=None, sampling=sampling, max_new_tokens=4, seed=seed
        )
        counts[made.token_ids[1:3]] += 1
    law: Counter[tuple[int, ...]] = Counter()
    for a, p in enumerate(next_probs(target, prompt, sampling)):
        for b, q in enumerate(next_probs(target, [*prompt, a], sampling)):
            for c, r in enumerate(next_probs(target, [*prompt, a, b], sampling)):
                law[b, c] += p * q * r  # type: ignore[assignment]
    expected = np.array([law[tokens] for tokens in law], np.float64)
    observed = [counts[tokens] for tokens in law]
    assert chisquare(observed, expected / expected.sum() * total).pvalue > 1e-3


def next_probs(target: TorchModel, tokens: list[int], sampling: SamplingParams) -> list[float]:
    (logits,) = target.open(1, 10).forward([tokens], [1])
    probs: list[float] = adjusted_probs(logits[0].astype(np.float64), sampling).tolist()
    return probs


def test_among_several_it_shares_the_cache_too(target: TorchModel) -> None:
    own = drafter(target, "exit")
    plain = generate(target, PROMPT, max_new_tokens=30).token_ids
    both = Several([PromptLookup([(3, 4)]), own])
    made = generate(target, PROMPT, drafter=both, num_draft_tokens=None, max_new_tokens=30)
    assert made.token_ids == plain
    assert not made.steps[0].drafted  # the target has yet to read the prompt
    assert (
        generate(
            target, PROMPT, drafter=Several([NoDrafter()]), num_draft_tokens=None, max_new_tokens=30
        ).token_ids
        == plain
    )


def test_the_target_keeps_its_layers_and_weights(target: TorchModel) -> None:
    before = {key: value.data_ptr() for key, value in target.model.state_dict().items()}
    (expected,) = target.open(1, 20).forward([PROMPT], [1])
    expected = expected.copy()
    own = drafter(target, "skip")
    own.shallow.open(1, 20).forward([PROMPT], [1])
    (logits,) = target.open(1, 20).forward([PROMPT], [1])
    assert_array_equal(logits, expected)
    for key, value in own.shallow.model.state_dict().items():
        assert value.data_ptr() == before[key]
    assert own.shallow.weight_bytes < target.weight_bytes
    assert isinstance(own.shallow.model, torch.nn.Module)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"exit_layer": 1, "skip_layers": [1]},
        {"exit_layer": 0},
        {"exit_layer": -3},
        {"exit_layer": LAYERS},
        {"skip_layers": [LAYERS]},
        {"skip_layers": [-1]},
        {"skip_layers": range(LAYERS)},
    ],
)
def test_impossible_layers_are_refused(target: TorchModel, options: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="layer"):
        SelfSpeculation(target, **options)  # type: ignore[arg-type]


def test_another_target_is_refused(target: TorchModel) -> None:
    own = drafter(target, "exit")
    with pytest.raises(OptionError, match="not for"):
        generate(TabularModel.random(97), PROMPT, drafter=own, num_draft_tokens=None)
    with pytest.raises(OptionError, match="not for"):
        own.open(TorchModel(llama()), 1, 10)
