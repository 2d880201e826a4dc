"""Sessions: products are exact whatever the processor."""

from importlib.resources import files

import numpy as np
import onnx_ir as ir
import pytest

from draftwise.models.onnx import options
from draftwise.models.onnx.constants import constant
from draftwise.models.onnx.options import INNER, SATURATION, saturates, session_options

X64_PRECISION = "session.x64quantprecision"


def probe() -> bytes:
    """The graph that `saturates` runs, serialized."""
    rows = ir.Value(name="x", type=ir.TensorType(ir.DataType.UINT8), shape=ir.Shape(["rows", INNER]))
    graph = ir.Graph([rows], [], nodes=[], opset_imports={"": 21, "com.microsoft": 1}, name="saturation")
    weights = constant(graph, "weights", np.full((INNER, 16), 127, np.int8))
    one = constant(graph, "one", np.float32(1))
    middle = constant(graph, "middle", np.uint8(128))
    product = ir.node(
        "MatMulIntegerToFloat", [rows, weights, one, one, middle], domain="com.microsoft", name="product"
    )
    graph.append(product)
    (output,) = product.outputs
    output.name, output.type, output.shape = "y", ir.TensorType(ir.DataType.FLOAT), ir.Shape(["rows", 16])
    graph.outputs.append(output)
    serialized: bytes = ir.to_proto(ir.Model(graph, ir_version=10)).SerializeToString(deterministic=True)
    return serialized


def test_the_probe_is_the_product_that_row_wise_models_consist_of() -> None:
    assert (files("draftwise.models.onnx") / SATURATION).read_bytes() == probe()


@pytest.mark.parametrize(("wrong", "entry"), [(False, "0"), (True, "1")])
def test_where_the_product_overflows_weights_are_made_unsigned(
    monkeypatch: pytest.MonkeyPatch, wrong: bool, entry: str
) -> None:
    class Session:
        def __init__(self, graph: bytes, providers: list[str]) -> None:
            pass

        def run(self, outputs: None, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
            exact = np.full((len(feed["x"]), 16), INNER * 127 * 127, np.float32)
            if wrong and len(exact) > 1:  # one kernel is right, the other is not
                exact[-1, -1] -= 1
            return [exact]

    monkeypatch.setattr(options.ort, "InferenceSession", Session)
    saturates.cache_clear()
    try:
        assert session_options().get_session_config_entry(X64_PRECISION) == entry
    finally:
        saturates.cache_clear()
