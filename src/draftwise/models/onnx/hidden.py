"""Hidden states among the outputs of a graph, and the weights that heads share with it."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from draftwise.errors import OptionError, UnsupportedError
from draftwise.models.onnx.manifest import hidden_state_name

NORMS = ("LayerNormalization", "SimplifiedLayerNormalization")


def expose(graph: ir.Graph, numbers: Sequence[int], num_layers: int, head: ir.Node) -> None:
    """Make outputs of hidden states, by the numbers of `models.base.Tap`; `head` is the output layer.

    Each is computed anyway, and costs a pass nothing unless somebody binds it. Raises OptionError for a layer
    that is not there, UnsupportedError where the graph does not show what goes into one.
    """
    width = head.inputs[1].const_value.shape[0]
    for name, number in {hidden_state_name(number, num_layers): number for number in numbers}.items():
        if not -1 <= number <= num_layers:
            raise OptionError(
                f"there is no hidden state {number} in a model of {num_layers} layers; give 0 to that number "
                "or, for the last, -1."
            )
        value = _input_of_layer(graph, number) if 0 <= number < num_layers else head.inputs[0]
        value.name = name
        value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([1, "sequence_length", width])
        graph.outputs.append(value)


def _input_of_layer(graph: ir.Graph, number: int) -> ir.Value:
    """The residual stream that the first norm of a layer reads, which may also be where it is summed up."""
    prefix = f"/model/layers.{number}/input_layernorm/"
    norm = next((node for node in graph if (node.name or "").startswith(prefix)), None)
    if norm is not None and norm.op_type in NORMS:
        return norm.inputs[0]
    if norm is not None and norm.op_type in [f"Skip{kind}" for kind in NORMS] and len(norm.outputs) == 4:
        return norm.outputs[3]
    raise UnsupportedError(
        f"the exported graph does not show what goes into layer {number}; use the torch engine for "
        "this model."
    )


def embedding(graph: ir.Graph) -> tuple[ir.Node, ir.Node | None, NDArray[np.float32]]:
    """The node that looks tokens up, the transposition that its table comes from if tied, and the table.

    A tied table is the transposed output layer.
    """
    (gather,) = [usage.node for usage in graph.inputs[0].uses() if usage.node.op_type == "Gather"]
    table = gather.inputs[0]
    transpose = table.producer()
    weights = transpose.inputs[0].const_value.numpy().T if transpose else table.const_value.numpy()
    return gather, transpose, weights


def shared_weights(graph: ir.Graph, head: ir.Node) -> dict[str, NDArray[np.float32]]:
    """The embedding and the output layer as PyTorch has them; a tied output layer is left out."""
    _, transpose, table = embedding(graph)
    weights = {"embedding.weight": np.ascontiguousarray(table)}
    if transpose is None:
        weights["output.weight"] = np.ascontiguousarray(head.inputs[1].const_value.numpy().T)
    for add in [usage.node for usage in head.outputs[0].uses() if usage.node.op_type == "Add"]:
        weights["output.bias"] = add.inputs[1].const_value.numpy()
    return weights
