"""The 8-bit products on their own: how close they come, and what zeros and odd widths do to them."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from draftwise.models.onnx.graph import quantize_matmuls
from draftwise.models.onnx.manifest import Layout

ERRORS = {Layout.BLOCKWISE: 0.02, Layout.ROWWISE: 0.02, Layout.INT4: 0.15}  # over the mean magnitude


def product(matrix: np.ndarray, layout: Layout, folder: Path) -> ort.InferenceSession:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1, "n", matrix.shape[0]]))
    weights = ir.Value(name="w", const_value=ir.tensor(matrix, name="w"))
    node = ir.node("MatMul", [x, weights])
    y = node.outputs[0]
    y.name, y.type, y.shape = "y", x.type, ir.Shape([1, "n", matrix.shape[1]])
    graph = ir.Graph(
        [x], [y], nodes=[node], initializers=[weights], opset_imports={"": 21, "com.microsoft": 1}, name="g"
    )
    quantize_matmuls(graph, layout, lambda stage, fraction: None)
    assert "w" not in graph.initializers
    ir.save(ir.Model(graph, ir_version=10), folder / "product.onnx")
    return ort.InferenceSession(folder / "product.onnx")


@pytest.mark.parametrize("layout", ERRORS)
@pytest.mark.parametrize("shape", [(64, 32), (100, 17), (576, 96)])
def test_close_to_the_float_product(layout: Layout, shape: tuple[int, int], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal(shape, np.float32)
    x = (
        rng.standard_normal((1, 5, shape[0]), np.float32)
        * np.array([1e-3, 1, 10, 1e3, 1e5], np.float32)[:, None]
    )
    (y,) = product(matrix, layout, tmp_path).run(None, {"x": x})
    exact = x @ matrix
    error = np.abs(y - exact).mean(axis=-1) / np.abs(exact).mean(axis=-1)
    assert ERRORS[layout] / 5 < error.max() < ERRORS[layout]


@pytest.mark.parametrize("layout", ERRORS)
def test_a_row_does_not_depend_on_the_others_and_zeros_give_zeros(layout: Layout, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((128, 40), np.float32)
    matrix[:, 7] = 0
    x = rng.standard_normal((1, 4, 128), np.float32)
    x[0, 1] = 0
    x[0, 2] *= 1e6
    session = product(matrix, layout, tmp_path)
    (together,) = session.run(None, {"x": x})
    (pair,) = session.run(None, {"x": x[:, :2]})
    np.testing.assert_array_equal(together[:, :2], pair)
    assert not together[0, 1].any()
    np.testing.assert_allclose(together[0, :, 7], 0, atol=1e-5 * np.abs(together).max())
    assert np.isfinite(together).all()
