"""Hidden states that the PyTorch engine hands out are those of transformers; other engines refuse by name."""

from contextlib import closing

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from draftwise.errors import OptionError, UnsupportedError
from draftwise.models.base import Tap
from draftwise.models.tabular import TabularModel
from draftwise.models.torch import TorchModel, engine
from tests.models import tiny
from tests.models.tiny import one_thread  # noqa: F401

TEXT = [int(token_id) for token_id in np.random.default_rng(0).integers(0, tiny.VOCAB_SIZE, 90)]
ALL_LAYERS = (0, 1, 2, -1)  # of two layers, so that 2 and -1 are the same


def of_transformers(model: PreTrainedModel, token_ids: list[int]) -> list[torch.Tensor]:
    with torch.inference_mode():
        output = model(input_ids=torch.tensor([token_ids]), use_cache=False, output_hidden_states=True)
    return [hidden[0] for hidden in output.hidden_states]


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_they_are_those_of_transformers(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ragged rows, of prompts cut into pieces, of one row alone, and after going back."""
    monkeypatch.setattr(engine, "PIECE_WIDTH", 16)
    model = tiny.ARCHITECTURES[architecture]()
    expected = of_transformers(model, TEXT)
    tap, another = Tap(ALL_LAYERS), Tap((1,))
    with closing(TorchModel(model).open(3, 100, taps=[tap, another])) as state:
        state.forward([TEXT[:40], [], TEXT[:25]], [1, 0, 1])
        assert not tap.rows[1]
        state.keep(0, 31)
        before = tap.rows
        state.forward([TEXT[31:70], TEXT[:5], []], [2, 1, 0])
        assert not tap.rows[2]
        for rows, row, start, stop in [
            (before, 0, 0, 40),
            (before, 2, 0, 25),
            (tap.rows, 0, 31, 70),
            (tap.rows, 1, 0, 5),
        ]:
            assert len(rows[row]) == len(ALL_LAYERS)
            for hidden, number in zip(rows[row], ALL_LAYERS, strict=True):
                torch.testing.assert_close(hidden, expected[number][start:stop], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(another.rows[0], [tap.rows[0][1]])


def test_no_hook_stays() -> None:
    model = tiny.llama()
    with closing(TorchModel(model).open(1, 10, taps=[Tap((0, -1))])) as state:
        state.forward([[1, 2]], [1])
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_a_tree_has_its_tokens_in_the_order_fed() -> None:
    model = tiny.llama()
    tap = Tap((-1,))
    with closing(TorchModel(model).open(1, 20, taps=[tap])) as state:
        state.forward([TEXT[:5]], [1])
        state.forward([[7, 8, 9]], [3], [[-1, -1, 1]])
        expected = of_transformers(model, [*TEXT[:5], 8, 9])[-1][5:]
        torch.testing.assert_close(tap.rows[0][0][1:], expected, rtol=1e-4, atol=1e-4)


def test_what_cannot_be_heard_is_refused() -> None:
    with pytest.raises(OptionError, match="hidden state 3"):
        TorchModel(tiny.llama()).open(1, 10, taps=[Tap((3,))])
    with pytest.raises(UnsupportedError, match=r"little table.*torch engine"):
        TabularModel.random(3, name="little table").open(1, 10, taps=[Tap((-1,))])
