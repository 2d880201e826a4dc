"""The PyTorch engine beyond what every backend must do: architectures, pieces, padding, refusals."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    Lfm2Config,
    Lfm2ForCausalLM,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    PreTrainedModel,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
    RwkvConfig,
    RwkvForCausalLM,
)

from draftwise.errors import OptionError, UnsupportedError
from draftwise.models.torch import TorchModel, engine
from draftwise.models.torch.engine import TorchState
from draftwise.models.torch.feed import VIEW_STEP, Feed, cut
from tests.models import tiny
from tests.models.tiny import one_thread  # noqa: F401

TEXT = [int(token_id) for token_id in np.random.default_rng(0).integers(0, tiny.VOCAB_SIZE, 150)]


@pytest.fixture(scope="module")
def llama() -> PreTrainedModel:
    return tiny.llama()


SMALL = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2}
EXPERTS = {"num_experts": 2, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8}


def without_cache(model: PreTrainedModel, token_ids: list[int]) -> np.ndarray:
    with torch.inference_mode():
        logits: np.ndarray = model(input_ids=torch.tensor([token_ids]), use_cache=False).logits[0].numpy()
    return logits


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_logits_are_those_of_transformers_without_a_cache(architecture: str) -> None:
    """Ragged, and after going back across a window."""
    model = tiny.ARCHITECTURES[architecture]()
    expected = without_cache(model, TEXT)
    with closing(TorchModel(model).open(2, 200)) as state:
        first, second = state.forward([TEXT[:100], TEXT[:40]], [20, 40])
        np.testing.assert_allclose(first, expected[80:100], atol=5e-5)
        np.testing.assert_allclose(second, expected[:40], atol=5e-5)
        state.keep(0, 11)
        first, second = state.forward([TEXT[11:], TEXT[40:41]], [139, 1])
        np.testing.assert_allclose(first, expected[11:], atol=5e-5)
        np.testing.assert_allclose(second, expected[40:41], atol=5e-5)


@pytest.mark.parametrize("architecture", ["gemma2", "gemma3", "mistral", "starcoder2", "llama4"])
def test_a_window_hides_what_is_far_away(architecture: str) -> None:
    """The test above would say little of windows that no logits depend on."""
    windowed = without_cache(tiny.ARCHITECTURES[architecture](), TEXT)
    wide = {"attention_chunk_size": 200} if architecture == "llama4" else {"sliding_window": 200}
    whole = without_cache(tiny.ARCHITECTURES[architecture](**wide), TEXT)
    np.testing.assert_allclose(windowed[: tiny.WINDOW], whole[: tiny.WINDOW], atol=1e-5)
    assert np.abs(windowed[tiny.WINDOW :] - whole[tiny.WINDOW :]).max(axis=1).min() > 1e-2


@pytest.mark.parametrize("architecture", ["gemma2", "gemma3", "mistral"])
def test_a_rejection_may_cross_a_window(architecture: str) -> None:
    """Guesses wider than the window are forgotten at every position, in texts far longer than it."""
    window, guesses = 3, TEXT[:8]
    model = tiny.ARCHITECTURES[architecture](sliding_window=window)
    expected = without_cache(model, TEXT)
    with closing(TorchModel(model).open(1, 160)) as state:
        state.forward([TEXT[:60]], [0])
        for length in range(60, 120, 2):
            state.forward([guesses], [8])
            state.keep(0, length)
            (logits,) = state.forward([TEXT[length : length + 8]], [8])
            np.testing.assert_allclose(logits, expected[length : length + 8], atol=5e-5)
            state.keep(0, length + 2)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_both_kinds_of_attention(attention: str, llama: PreTrainedModel) -> None:
    model = tiny.llama(attn_implementation=attention)
    assert model.config._attn_implementation == attention
    (logits,) = TorchModel(model).open(1, 150).forward([TEXT], [150])
    np.testing.assert_allclose(logits, without_cache(llama, TEXT), atol=5e-5)


def test_long_feeds_go_through_in_pieces(llama: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    model = TorchModel(llama)
    parents = [-1, 0, 0, 1, 2, 3, 3, -1, 4, 8, 9, 10]
    asked = [TEXT[:1], [], TEXT[50:62], TEXT[:50], []], [1, 0, 12, 45, 0], [None, None, parents, None, None]
    together = model.open(5, 100).forward(*asked)
    shapes: list[tuple[int, ...]] = []
    hook = llama.register_forward_pre_hook(
        lambda _, args, named: shapes.append(tuple(named["input_ids"].shape)), with_kwargs=True
    )
    monkeypatch.setattr(engine, "PIECE_WIDTH", 8)
    for pieces, whole in zip(model.open(5, 100).forward(*asked), together, strict=True):
        np.testing.assert_allclose(pieces, whole, atol=5e-5)
    hook.remove()
    # The rows from the first to the last that has tokens left: four, two, one.
    assert shapes == [(4, 8), (2, 8), *[(1, 8)] * 4, (1, 2)]


def test_only_the_logits_asked_for_are_computed(llama: PreTrainedModel) -> None:
    model = TorchModel(llama)
    computed: list[int] = []
    head = llama.get_output_embeddings()
    hook = head.register_forward_hook(lambda *call: computed.append(call[-1].numel() // tiny.VOCAB_SIZE))
    model.open(3, 160).forward([TEXT, TEXT[:9], []], [1, 4, 0])
    hook.remove()
    assert sum(computed) == 5


def test_padding_writes_into_no_slot_in_use(llama: PreTrainedModel) -> None:
    """A full row between two that are fed: its padding has nowhere to go but the spare slot."""
    full = TEXT[:VIEW_STEP]
    state = TorchModel(llama).open(3, len(full))
    state.forward([TEXT[:2], full, TEXT[:2]], [0, 0, 0])
    kept = [buffer[1, :, : len(full)].clone() for buffer in buffers(state)]
    first, _, last = state.forward([TEXT[2:9], [], TEXT[2:5]], [7, 0, 3])
    assert all(map(torch.equal, kept, (buffer[1, :, : len(full)] for buffer in buffers(state))))
    np.testing.assert_allclose(first, without_cache(llama, TEXT[:9])[2:], atol=5e-5)
    np.testing.assert_allclose(last, without_cache(llama, TEXT[:5])[2:], atol=5e-5)


def test_going_back_copies_nothing(llama: PreTrainedModel) -> None:
    state = TorchModel(llama).open(2, 100)
    state.forward([TEXT[:90], TEXT[:30]], [0, 0])
    before = [(buffer.data_ptr(), buffer.shape, buffer.clone()) for buffer in buffers(state)]
    state.keep(0, 5)
    state.keep(1, 29)
    for buffer, (address, shape, content) in zip(buffers(state), before, strict=True):
        assert (buffer.data_ptr(), buffer.shape) == (address, shape)
        assert torch.equal(buffer, content)


def buffers(state: TorchState) -> list[torch.Tensor]:
    return [buffer for layer in state._cache.layers for buffer in (layer.keys, layer.values)]


def test_padding_is_never_without_something_to_see() -> None:
    (piece,) = cut([Feed.of(5, [1, 2, 3], 1), Feed.of(0, [7], 1), Feed.of(9, [1, 2], 2, [-1, -1])], 8, 64)
    assert piece.num_seen.tolist() == [[6, 7, 8], [1, 1, 1], [9, 9, 1]]
    assert piece.slots.tolist() == [[5, 6, 7], [0, 63, 63], [9, 10, 63]]
    assert piece.positions.tolist() == [[5, 6, 7], [0, 0, 0], [9, 9, 0]]
    assert piece.wanted.tolist() == [[False, False, True], [True, False, False], [True, True, False]]


def test_cost_follows_the_longest_row_in_use() -> None:
    views = [
        piece.view
        for length in (1, VIEW_STEP, VIEW_STEP + 1)
        for piece in cut([Feed.of(length - 1, [0], 1)], 512, 1024)
    ]
    assert views == [VIEW_STEP, VIEW_STEP, 2 * VIEW_STEP]


@pytest.mark.parametrize(
    ("dtype", "of_logits", "tolerance"),
    [(torch.bfloat16, np.float32, 0.5), (torch.float32, np.float32, 5e-5), (torch.float64, np.float64, 5e-5)],
)
def test_logits_are_float32_or_wider(dtype: torch.dtype, of_logits: type, tolerance: float) -> None:
    model = TorchModel(tiny.llama(dtype=dtype))
    (logits,) = model.open(1, 10).forward([TEXT[:10]], [10])
    assert logits.dtype == of_logits
    np.testing.assert_allclose(logits, without_cache(tiny.llama(), TEXT[:10]), atol=tolerance)


def test_what_the_model_says_of_itself() -> None:
    model = TorchModel(tiny.llama(eos_token_id=[5, 6]), name="tiny")
    assert (model.name, model.vocab_size, model.max_length) == ("tiny", tiny.VOCAB_SIZE, 256)
    assert model.eos_token_ids == {5, 6}
    assert TorchModel(tiny.llama(eos_token_id=7)).eos_token_ids == {7}
    assert TorchModel(tiny.llama()).eos_token_ids == frozenset()
    with pytest.raises(OptionError, match=r"257.*tiny.*256"):
        model.open(1, 257)


def test_longrope_is_held_to_the_length_that_its_keys_are_good_for() -> None:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "original_max_position_embeddings": 64,
        "short_factor": [1.0] * 4,
        "long_factor": [4.0] * 4,
    }
    model = tiny.llama(rope_parameters=rope)
    assert TorchModel(model).max_length == 64
    (logits,) = TorchModel(model).open(1, 64).forward([TEXT[:64]], [64])
    np.testing.assert_allclose(logits, without_cache(model, TEXT[:64]), atol=5e-5)
    # One token more, and transformers itself gives the earlier ones other logits.
    assert np.abs(without_cache(model, TEXT[:65])[10:64] - logits[10:64]).max() > 1e-2


def test_keeping_what_is_not_held_is_refused(llama: PreTrainedModel) -> None:
    state = TorchModel(llama).open(1, 20)
    state.forward([TEXT[:10]], [0])
    with pytest.raises(OptionError, match="10 tokens"):
        state.keep(0, 11)
    with pytest.raises(OptionError, match="slots"):
        state.keep_path(0, 5, [6, 10])


class WithoutPositions(LlamaForCausalLM):
    """What a checkpoint may bring along: a forward that works positions and mask out for itself."""

    def forward(self, input_ids: torch.Tensor, **options: Any) -> Any:
        return super().forward(input_ids)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: MambaForCausalLM(MambaConfig(**SMALL)), "linear_attention"),
        (lambda: RwkvForCausalLM(RwkvConfig(**SMALL, attention_hidden_size=32)), "rwkv"),
        (lambda: Qwen3NextForCausalLM(Qwen3NextConfig(**SMALL, **EXPERTS)), "linear_attention"),
        (lambda: Lfm2ForCausalLM(Lfm2Config(**SMALL, layer_types=["conv", "full_attention"])), "conv"),
        (lambda: BloomForCausalLM(BloomConfig(vocab_size=50, hidden_size=32, n_layer=1, n_head=4)), "Bloom"),
        (lambda: WithoutPositions(tiny.llama().config), "WithoutPositions"),
        (lambda: tiny.llama(attn_implementation="flex_attention"), "sdpa"),
    ],
    ids=["mamba", "rwkv", "qwen3_next", "lfm2", "bloom", "own code", "flex_attention"],
)
def test_a_model_that_cannot_go_back_or_be_masked_is_refused_by_name(
    make: Callable[[], PreTrainedModel], said: str
) -> None:
    with pytest.raises(UnsupportedError, match=f"the model.*{said}"):
        TorchModel(make(), name="the model")
