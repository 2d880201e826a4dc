"""Recurrent and hybrid decoders beyond what every backend must do: how they go back, and what is refused."""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import numpy as np
import pytest
import torch
from transformers import (
    MiniMaxConfig,
    MiniMaxForCausalLM,
    PreTrainedModel,
    RecurrentGemmaConfig,
    RecurrentGemmaForCausalLM,
    RwkvConfig,
    RwkvForCausalLM,
)

from draftwise.errors import OptionError, UnsupportedError
from draftwise.models.base import Tap
from draftwise.models.torch import RecurrentModel, recurrent
from tests.models import tiny
from tests.models.tiny import one_thread  # noqa: F401
from tests.models.tiny_recurrent import ONE_BY_ONE, RECURRENT

TEXT = [int(token_id) for token_id in np.random.default_rng(0).integers(0, tiny.VOCAB_SIZE, 150)]


def without_cache(model: PreTrainedModel, token_ids: list[int]) -> np.ndarray:
    with torch.inference_mode():
        logits: np.ndarray = model(input_ids=torch.tensor([token_ids]), use_cache=False).logits[0].numpy()
    return logits


@contextmanager
def widths(model: PreTrainedModel) -> Iterator[list[int]]:
    """How many tokens each pass has."""
    seen: list[int] = []
    hook = model.register_forward_pre_hook(
        lambda _, args, named: seen.append(named["input_ids"].shape[1]), with_kwargs=True
    )
    yield seen
    hook.remove()


@pytest.mark.parametrize("architecture", RECURRENT)
def test_logits_are_those_of_transformers_without_a_cache(architecture: str) -> None:
    """Ragged, and after going back to a snapshot, to where there is none, and to the beginning."""
    model = RECURRENT[architecture]()
    expected = without_cache(model, TEXT)
    with closing(RecurrentModel(model).open(2, 200)) as state:
        first, second = state.forward([TEXT[:100], TEXT[:40]], [20, 40])
        np.testing.assert_allclose(first, expected[80:100], atol=1e-4)
        np.testing.assert_allclose(second, expected[:40], atol=1e-4)
        for length in (97, 81, 11, 0):
            state.keep(0, length)
            logits, _ = state.forward([TEXT[length : length + 30], []], [30, 0])
            np.testing.assert_allclose(logits, expected[length : length + 30], atol=1e-4)


def test_a_rejection_costs_no_pass_of_its_own() -> None:
    """The prompt is fed before the guesses; what was accepted of them is fed again with the next ones."""
    model = RECURRENT["mamba2"]()
    target = RecurrentModel(model)
    with closing(target.open(1, 150)) as state, widths(model) as seen:
        state.forward([TEXT[:60]], [5])  # 4 guesses
        assert seen == [56, 4]
        state.keep(0, 58)  # 2 of them are right
        state.forward([TEXT[58:63]], [5])
        assert seen[2:] == [2 + 5]
        state.keep(0, 63)  # all of them are
        state.forward([TEXT[63:68]], [5])
        assert seen[3:] == [5]
        for length in range(64, 88, 2):
            state.keep(0, length)
            state.forward([TEXT[length : length + 5]], [5])
    # As rejections follow one another, there is more to feed again, until it gets a pass and a snapshot.
    assert seen[4:] == [6, 8, 10, 12, 14, 16, 18, 20, 18, 4, 6, 8, 10]


def test_a_draft_model_goes_back_to_the_last_right_guess_without_feeding_it_again() -> None:
    model = RECURRENT["lfm2"]()
    with closing(RecurrentModel(model).open(1, 150)) as state, widths(model) as seen:
        state.forward([TEXT[:40]], [1])
        for position in range(40, 47):
            state.forward([TEXT[position : position + 1]], [1])
        state.keep(0, 43)
        (logits,) = state.forward([TEXT[50:52]], [2])
        assert seen == [40, *[1] * 7, 2]
    np.testing.assert_allclose(logits, without_cache(model, [*TEXT[:43], *TEXT[50:52]])[43:], atol=1e-4)


def test_more_guesses_than_there_are_snapshots_cost_a_longer_replay() -> None:
    model = RECURRENT["lfm2"]()
    with closing(RecurrentModel(model).open(1, 150)) as state, widths(model) as seen:
        for position in range(recurrent.MOST_SNAPSHOTS + 5):
            state.forward([TEXT[position : position + 1]], [1])
        state.keep(0, 3)
        (logits,) = state.forward([TEXT[3:5]], [2])
        assert seen[-1] == 5
    np.testing.assert_allclose(logits, without_cache(model, TEXT[:5])[3:], atol=1e-4)


def test_long_texts_go_through_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent, "PIECE_WIDTH", 32)
    model = RECURRENT["falcon_h1"]()
    target = RecurrentModel(model)
    with closing(target.open(1, 150)) as state, widths(model) as seen:
        (logits,) = state.forward([TEXT], [50])
        assert seen == [32, 32, 32, 5, 32, 17]
    np.testing.assert_allclose(logits, without_cache(model, TEXT)[100:], atol=1e-4)


@pytest.mark.parametrize("architecture", ONE_BY_ONE)
def test_where_a_state_goes_to_passes_of_one_token_only_there_are_no_others(
    architecture: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = ONE_BY_ONE[architecture]()
    with caplog.at_level(logging.WARNING, "draftwise"):
        target = RecurrentModel(model, name="tiny")
    assert target.one_by_one
    assert "tiny carries its state over to passes of one token only" in caplog.text
    with closing(target.open(1, 150)) as state, widths(model) as seen:
        state.forward([TEXT[:30]], [4])
        assert seen == [27, 1, 1, 1]
        state.keep(0, 28)
        (logits,) = state.forward([TEXT[50:53]], [3])
        assert seen[4:] == [1] * 4
    with closing(target.open(1, 150)) as state:
        state.forward([TEXT[:27]], [0])
        once = [state.forward([[token_id]], [1])[0] for token_id in (TEXT[27], *TEXT[50:53])]
    np.testing.assert_allclose(logits, np.concatenate(once[1:]), atol=1e-5)


@pytest.mark.parametrize("architecture", RECURRENT)
def test_all_others_are_fed_several_at_once(architecture: str) -> None:
    assert not RecurrentModel(RECURRENT[architecture]()).one_by_one


SMALL = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: RwkvForCausalLM(RwkvConfig(**SMALL, attention_hidden_size=32)), "Rwkv.*no cache"),
        (
            lambda: MiniMaxForCausalLM(
                MiniMaxConfig(
                    **SMALL,
                    num_attention_heads=4,
                    num_key_value_heads=2,
                    layer_types=["linear_attention", "full_attention"],
                    num_local_experts=2,
                )
            ),
            "MiniMax.*cache of its own",
        ),
        (
            lambda: RecurrentGemmaForCausalLM(
                RecurrentGemmaConfig(**{**SMALL, "num_hidden_layers": 3}, num_attention_heads=4, lru_width=32)
            ),
            "RecurrentGemma.*other logits",
        ),
    ],
    ids=["rwkv", "minimax", "recurrent_gemma"],
)
def test_a_model_that_cannot_go_back_is_refused_by_name(
    make: Callable[[], PreTrainedModel], said: str
) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make().eval()
    with pytest.raises(UnsupportedError, match=f"(?s)the model.*{said}"):
        RecurrentModel(model, name="the model")


def test_trees_hidden_states_and_odd_lengths_are_refused() -> None:
    target = RecurrentModel(RECURRENT["lfm2"](), name="tiny")
    with pytest.raises(UnsupportedError, match="tiny"):
        target.open(1, 10, taps=[Tap((-1,))])
    with pytest.raises(OptionError, match=r"257.*tiny.*256"):
        target.open(1, 257)
    state = target.open(1, 10)
    state.forward([[1, 2, 3]], [3])
    with pytest.raises(OptionError, match="3 tokens"):
        state.keep(0, 4)
    with pytest.raises(UnsupportedError, match=r"tiny.*tree"):
        state.keep_path(0, 1, [2])
