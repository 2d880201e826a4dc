"""Which 8-bit layout suits this processor at the widths of a verification pass: measured, not guessed."""

from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from draftwise.models.onnx.constants import constant
from draftwise.models.onnx.graph import quantize_matmuls
from draftwise.models.onnx.manifest import Layout
from draftwise.models.onnx.options import PROVIDERS, session_options

WIDTHS = (2, 4, 8)
# Products as a small model has them, and so many that the processor's caches do not hold the weights.
INNER, OUTER, LAYERS = 1024, 2816, 8
ROUNDS = 9
# Blocks lose a tenth of the quality that rows lose, so rows must be faster by this factor to be worth it.
MARGIN = 1.25


def best_layout() -> Layout:
    """Blocks, unless passes of a verification's width are clearly faster with rows; takes about two seconds.

    They are on processors without integer dot products. What counts is the sum of the median times.
    """
    rng = np.random.default_rng(0)
    with TemporaryDirectory() as folder:
        sessions = {layout: _session(Path(folder), layout) for layout in (Layout.BLOCKWISE, Layout.ROWWISE)}
        seconds: dict[Layout, list[list[float]]] = {layout: [[] for _ in WIDTHS] for layout in sessions}
        for _ in range(ROUNDS):
            for layout, session in sessions.items():
                for times, width in zip(seconds[layout], WIDTHS, strict=True):
                    x = rng.standard_normal((1, width, INNER), np.float32)
                    start = perf_counter()
                    session.run(None, {"x": x})
                    times.append(perf_counter() - start)
    blocks, rows = (sum(float(np.median(times)) for times in each) for each in seconds.values())
    return Layout.ROWWISE if blocks > MARGIN * rows else Layout.BLOCKWISE


def _session(folder: Path, layout: Layout) -> ort.InferenceSession:
    """A chain of products there and back, with its weights in the given layout."""
    rng = np.random.default_rng(0)
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1, "width", INNER]))
    graph = ir.Graph([x], [], nodes=[], opset_imports={"": 21, "com.microsoft": 1}, name="products")
    value = x
    for index, shape in enumerate([(INNER, OUTER), (OUTER, INNER)] * LAYERS):
        weights = constant(graph, f"weights{index}", rng.standard_normal(shape, np.float32))
        product = ir.node("MatMul", [value, weights])
        graph.append(product)
        value = product.outputs[0]
        value.type, value.shape = x.type, ir.Shape([1, "width", shape[1]])
    value.name = "y"
    graph.outputs.append(value)
    quantize_matmuls(graph, layout, lambda stage, fraction: None)
    file = folder / f"{layout}.onnx"
    ir.save(ir.Model(graph, ir_version=10), file, external_data=f"{file.name}.data")
    return ort.InferenceSession(file, session_options(), PROVIDERS)
