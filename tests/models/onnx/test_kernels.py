"""The choice of layout: which it can be, and that both candidates compute the same product."""

from pathlib import Path

import numpy as np
import pytest

from draftwise.models.onnx import kernels
from draftwise.models.onnx.manifest import Layout


def test_candidates_compute_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "LAYERS", 1)
    x = np.random.default_rng(0).standard_normal((1, 3, kernels.INNER), np.float32)
    blocks, rows = (
        kernels._session(tmp_path, layout).run(None, {"x": x})[0]
        for layout in (Layout.BLOCKWISE, Layout.ROWWISE)
    )
    np.testing.assert_allclose(blocks, rows, atol=0.05 * np.abs(rows).max())


@pytest.mark.parametrize(("seconds_of_blocks", "chosen"), [(1.0, Layout.BLOCKWISE), (2.0, Layout.ROWWISE)])
def test_rows_must_be_clearly_faster(
    monkeypatch: pytest.MonkeyPatch, seconds_of_blocks: float, chosen: Layout
) -> None:
    clock = [0.0]

    class Timed:
        def __init__(self, seconds: float) -> None:
            self.seconds = seconds

        def run(self, outputs: None, feed: dict[str, np.ndarray]) -> None:
            clock[0] += self.seconds

    seconds = {Layout.BLOCKWISE: seconds_of_blocks, Layout.ROWWISE: 0.9}
    monkeypatch.setattr(kernels, "_session", lambda folder, layout: Timed(seconds[layout]))
    monkeypatch.setattr(kernels, "perf_counter", lambda: clock[0])
    assert kernels.best_layout() is chosen
