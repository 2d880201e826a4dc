"""The probe notices one different bit, and remembers its answer where it can."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from draftwise.models.base import Tap
from draftwise.models.context import ContextState
from draftwise.models.onnx import probe
from draftwise.models.onnx.probe import PROBE, remembered_width_invariant, width_invariant
from draftwise.models.tabular import TabularModel
from draftwise.types import Logits


class OneBit(TabularModel):
    """A model whose passes of one width move one logit by the last bit."""

    odd_width = 0

    def open(
        self, num_sequences: int, max_length: int, *, width_invariant: bool = True, taps: Sequence[Tap] = ()
    ) -> ContextState:
        state = super().open(num_sequences, max_length, width_invariant=width_invariant)
        forward = state.forward

        def moved(token_ids: Sequence[Sequence[int]], num_logits: Sequence[int]) -> list[Logits]:
            logits = [rows.copy() for rows in forward(token_ids, num_logits)]
            if len(token_ids[0]) == self.odd_width:
                logits[0][-1, 2] = np.nextafter(logits[0][-1, 2], np.inf)
            return logits

        state.forward = moved  # type: ignore[method-assign, assignment]
        return state


def test_one_bit_at_one_width_is_noticed() -> None:
    model = OneBit(TabularModel.random(50, 2, 0).table)
    assert width_invariant(model)
    for width in (1, 5, 17):
        model.odd_width = width
        assert not width_invariant(model)


def test_a_short_model_is_probed_as_far_as_it_reaches() -> None:
    model = OneBit(TabularModel.random(50, 2, 0).table, max_length=40)
    assert width_invariant(model)
    model.odd_width = 17
    assert not width_invariant(model)


def test_the_answer_is_kept_for_each_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = OneBit(TabularModel.random(50, 2, 0).table)
    assert remembered_width_invariant(model, tmp_path, None)
    model.odd_width = 5
    assert remembered_width_invariant(model, tmp_path, None)
    monkeypatch.setattr(probe, "processor", lambda: "another processor")
    assert not remembered_width_invariant(model, tmp_path, None)
    assert sorted(json.loads((tmp_path / PROBE).read_text()).values()) == [False, True]


def test_a_folder_that_cannot_be_written_is_probed_each_time(tmp_path: Path) -> None:
    model = OneBit(TabularModel.random(50, 2, 0).table)
    assert remembered_width_invariant(model, tmp_path / "absent", None)
    model.odd_width = 5
    assert not remembered_width_invariant(model, tmp_path / "absent", None)
