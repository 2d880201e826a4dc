"""The ONNX engine beyond what every backend must do."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from draftwise.decoding import generate
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.errors import OptionError, UnsupportedError
from draftwise.models.onnx import engine
from draftwise.models.onnx.engine import PIECE, OnnxModel, load_onnx
from draftwise.models.onnx.manifest import Layout
from draftwise.models.onnx.probe import width_invariant
from draftwise.sampling import SamplingParams

TOKEN_IDS = [(31 * position + position * position) % 256 for position in range(PIECE + 70)]


def test_logits_are_those_of_the_float_model(model: OnnxModel, source: Path) -> None:
    state = model.open(1, len(TOKEN_IDS))
    logits = state.forward([TOKEN_IDS], [40])[0]
    with torch.inference_mode():
        reference = (
            AutoModelForCausalLM.from_pretrained(source)(torch.tensor([TOKEN_IDS])).logits[0, -40:].numpy()
        )
    spread = reference.std()
    error = np.abs(logits - reference).mean() / spread
    assert error < (1e-5 if model.precision == Layout.FLOAT32 else 0.08)


def test_every_width_gives_the_same_bits(model: OnnxModel) -> None:
    assert width_invariant(model)
    assert model.width_invariant


def test_a_pass_of_one_position_is_run_as_it_is_where_that_was_asked_for(model: OnnxModel) -> None:
    exact, fast = model.open(1, 50), model.open(1, 50, width_invariant=False)
    logits = []
    for state in (exact, fast):
        state.forward([TOKEN_IDS[:40]], [1])
        logits.append(state.forward([TOKEN_IDS[40:41]], [1])[0].copy())
    if model.precision == Layout.FLOAT32:
        np.testing.assert_allclose(logits[0], logits[1], atol=1e-3)
    assert fast.lengths == [41]


def test_a_lone_token_is_fed_as_the_shortest_pass(model: OnnxModel, monkeypatch: pytest.MonkeyPatch) -> None:
    widths: list[int] = []
    bind = engine._Row._bind_input

    def watched(row: engine._Row, name: str, array: NDArray[np.int64]) -> None:
        if name == "input_ids":
            widths.append(array.shape[1])
        bind(row, name, array)

    monkeypatch.setattr(engine._Row, "_bind_input", watched)
    state = model.open(1, 50)
    state.forward([TOKEN_IDS[:6]], [1])
    state.forward([TOKEN_IDS[6:7]], [1])
    state.forward([TOKEN_IDS[7:9]], [1])
    assert widths == [6, model.shortest_pass, 2]
    assert model.shortest_pass > 1


def test_a_row_can_be_filled_to_the_last_position(model: OnnxModel) -> None:
    token_ids = (TOKEN_IDS * 2)[: model.max_length]
    state = model.open(1, model.max_length)
    state.forward([token_ids[:-1]], [1])
    last = state.forward([token_ids[-1:]], [1])[0].copy()
    state.keep(0, model.max_length - 3)
    np.testing.assert_array_equal(state.forward([token_ids[-3:]], [1])[0], last)


def test_more_than_fits_is_refused_and_nothing_is_lost(model: OnnxModel) -> None:
    with pytest.raises(OptionError, match="holds"):
        model.open(1, model.max_length + 1)
    state = model.open(2, 20)
    state.forward([TOKEN_IDS[:15], TOKEN_IDS[:3]], [0, 0])
    with pytest.raises(OptionError, match="larger max_length"):
        state.forward([TOKEN_IDS[:2], TOKEN_IDS[:18]], [1, 1])
    assert state.lengths == [15, 3]


def test_a_tree_is_refused_by_name(model: OnnxModel) -> None:
    state = model.open(1, 20)
    with pytest.raises(UnsupportedError, match=r"tiny-qwen2.*engine='torch'"):
        state.forward([[1, 2, 3]], [3], [[-1, 0, 0]])


def test_threads_below_one_are_refused(converted: Path) -> None:
    with pytest.raises(OptionError, match="threads"):
        load_onnx(converted, threads=0)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("num_draft_tokens", [1, 2, 5, 11])
def test_speculation_equals_plain_decoding_with_the_same_seed_and_repeats(
    model: OnnxModel, temperature: float, num_draft_tokens: int
) -> None:
    def run(drafter: PromptLookup | None) -> tuple[int, ...]:
        return generate(
            model,
            TOKEN_IDS[:30] * 2,
            drafter=drafter,
            sampling=SamplingParams(temperature=temperature),
            num_draft_tokens=num_draft_tokens if drafter else None,
            max_new_tokens=60,
            seed=7,
        ).token_ids

    speculative = run(PromptLookup())
    assert speculative == run(PromptLookup())
    assert speculative == run(None)
