"""Constants of a graph."""

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray


def constant(graph: ir.Graph, name: str, array: NDArray[np.generic] | np.generic) -> ir.Value:
    """The initializer of that name, made when first asked for."""
    if name not in graph.initializers:
        tensor = ir.tensor(array, name=name)
        graph.initializers[name] = ir.Value(
            name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=tensor.shape
        )
    return graph.initializers[name]
