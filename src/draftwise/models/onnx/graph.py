"""The builder's float32 graph, rewritten for verification.

Three changes: constant matrix products in 8 or 4 bits (layouts, below), the embedding table in 8 bits, and
logits for only the last positions of a pass, so that a prompt's are never materialised. Where heads are to
read hidden states, these become outputs; a draft model may get an output layer of few tokens.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from draftwise.errors import UnsupportedError
from draftwise.models.onnx.constants import constant
from draftwise.models.onnx.hidden import embedding, expose, shared_weights
from draftwise.models.onnx.manifest import NUM_LOGITS, SHARED_WEIGHTS, Layout
from draftwise.models.onnx.vocabulary import restrict
from draftwise.progress import Progress

# Weights in a block. With 8 bits 128 are not width-invariant on every processor, and 32 slower and no better.
BLOCK_SIZES = {8: 64, 4: 32}


def rewrite(
    source: Path,
    out: Path,
    layout: Layout,
    progress: Progress,
    *,
    hidden_states: Sequence[int] = (),
    num_layers: int = 0,
    vocabulary: Sequence[int] = (),
) -> None:
    """Read the float graph `source`, write the rewritten one to `out` and its weights to `out.data`.

    `hidden_states`: those that become outputs, by the numbers of `models.base.Tap`, of a model of
    `num_layers`; with them, what heads share with the model is written beside `out`, in float32.
    `vocabulary`: the tokens that get logits, in order; none means all.
    """
    model = ir.load(source)
    graph = model.graph
    head = _output_layer(graph)
    if hidden_states:
        from safetensors.numpy import save_file

        expose(graph, hidden_states, num_layers, head)
        save_file(shared_weights(graph, head), out.with_name(SHARED_WEIGHTS))
    _last_logits_only(graph, head)
    if layout is not Layout.FLOAT32:
        _compact_embedding(graph)
    if vocabulary:
        restrict(graph, head, vocabulary)
    if layout is not Layout.FLOAT32:
        quantize_matmuls(graph, layout, progress)
    ir.save(model, out, external_data=f"{out.name}.data")


def _output_layer(graph: ir.Graph) -> ir.Node:
    head = next((node for node in _constant_matmuls(graph) if "lm_head" in (node.name or "")), None)
    if head is None:
        raise UnsupportedError(
            "the exported graph has no lm_head product; use the torch engine for this model."
        )
    return head


def _last_logits_only(graph: ir.Graph, head: ir.Node) -> None:
    count = ir.Value(name=NUM_LOGITS, type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([1]))
    graph.inputs.append(count)
    first = ir.node("Neg", [count])
    last = ir.node(
        "Slice",
        [
            head.inputs[0],
            first.outputs[0],
            constant(graph, "draftwise.end", np.array([np.iinfo(np.int64).max])),
            constant(graph, "draftwise.sequence_axis", np.array([1])),
        ],
    )
    graph.insert_before(head, [first, last])
    head.replace_input_with(0, last.outputs[0])
    logits = graph.outputs[0]
    logits.shape = ir.Shape([1, NUM_LOGITS, logits.shape[2]])


def _compact_embedding(graph: ir.Graph) -> None:
    """Store the embedding table as bytes with one scale for each token's row."""
    input_ids = graph.inputs[0]
    gather, transpose, weights = embedding(graph)
    scale = _scale(weights, axis=1)
    table_int8 = np.rint(weights / scale).astype(np.int8)
    rows = ir.node("Gather", [constant(graph, "draftwise.embedding", table_int8), input_ids])
    scales = ir.node("Gather", [constant(graph, "draftwise.embedding_scale", scale), input_ids])
    whole = ir.node("Cast", [rows.outputs[0]], attributes={"to": ir.DataType.FLOAT})
    embedded = ir.node("Mul", [whole.outputs[0], scales.outputs[0]])
    _replace(graph, gather, [rows, scales, whole, embedded])
    if transpose and not transpose.outputs[0].uses():
        graph.remove(transpose, safe=True)


def quantize_matmuls(graph: ir.Graph, layout: Layout, progress: Progress) -> None:
    """Replace every product with a constant matrix by its integer form and drop the float weights."""
    quantized_rows: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}
    matmuls = list(_constant_matmuls(graph))
    for done, node in enumerate(matmuls):
        progress("quantizing", done / len(matmuls))
        activations, weights = node.inputs
        matrix = weights.const_value.numpy()
        if layout is not Layout.ROWWISE:
            bits = 4 if layout is Layout.INT4 else 8
            new = _blockwise(graph, activations, weights.name, matrix, bits)
        else:
            new = []
            if activations not in quantized_rows:
                new = _quantize_rows(graph, activations)
                quantized_rows[activations] = (new[-1].outputs[0], new[1].outputs[0])
            new = new + _rowwise(graph, *quantized_rows[activations], weights.name, matrix)
        _replace(graph, node, new)
    for name in [name for name, value in graph.initializers.items() if not value.uses()]:
        del graph.initializers[name]
    progress("quantizing", 1.0)


def _blockwise(
    graph: ir.Graph, activations: ir.Value, name: str, matrix: NDArray[np.float32], bits: int
) -> list[ir.Node]:
    """One operator quantises activations in blocks and multiplies; accuracy level 4 is integer arithmetic."""
    inner, columns = matrix.shape
    size = BLOCK_SIZES[bits]
    blocks = -(-inner // size)
    padded = np.pad(matrix.T, [(0, 0), (0, blocks * size - inner)]).reshape(columns, blocks, size)
    scale, levels = _in_8_bits(padded) if bits == 8 else _in_4_bits(padded)
    product = ir.node(
        "MatMulNBits",
        [
            activations,
            constant(graph, f"{name}.uint{bits}", levels),
            constant(graph, f"{name}.scale", scale.reshape(-1)),
        ],
        attributes={"K": inner, "N": columns, "bits": bits, "block_size": size, "accuracy_level": 4},
        domain="com.microsoft",
    )
    return [product]


def _quantize_rows(graph: ir.Graph, activations: ir.Value) -> list[ir.Node]:
    """Divide each row by its largest magnitude, then round with one constant scale.

    A row of zeros gives 0/0, is rounded to some byte, and is multiplied by its zero at the end.
    """
    size = ir.node("Abs", [activations])
    largest = ir.node(
        "ReduceMax",
        [size.outputs[0], constant(graph, "draftwise.last_axis", np.array([-1]))],
        attributes={"keepdims": 1},
    )
    unit = ir.node("Div", [activations, largest.outputs[0]])
    rounded = ir.node(
        "QuantizeLinear",
        [unit.outputs[0], constant(graph, "draftwise.unit", np.float32(1 / 127)), _middle(graph)],
    )
    return [size, largest, unit, rounded]


def _rowwise(
    graph: ir.Graph, rows: ir.Value, largest: ir.Value, name: str, matrix: NDArray[np.float32]
) -> list[ir.Node]:
    """Unsigned rows around 128 times signed weights around 0, as integer dot products on x86 take them."""
    scale = _scale(matrix, axis=0)
    product = ir.node(
        "MatMulIntegerToFloat",
        [
            rows,
            constant(graph, f"{name}.int8", _levels(matrix, scale).astype(np.int8)),
            constant(graph, "draftwise.unit", np.float32(1 / 127)),
            constant(graph, f"{name}.scale", scale.reshape(-1)),
            _middle(graph),
        ],
        domain="com.microsoft",
    )
    return [product, ir.node("Mul", [product.outputs[0], largest])]


def _in_8_bits(blocks: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    scale = _scale(blocks, axis=2)
    levels = _levels(blocks, scale)
    levels += 128
    return scale, levels.astype(np.uint8)


def _in_4_bits(blocks: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Scales, and levels around 8, two to a byte, the first in its lower half.

    There is one more level below than above: the weight of the largest magnitude takes the lowest one.
    """
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2, keepdims=True), axis=2)
    scale = np.where(extreme != 0, extreme / -8, 1).astype(np.float32)
    levels = np.clip(np.rint(blocks / scale) + 8, 0, 15).astype(np.uint8)
    return scale, levels[..., ::2] | levels[..., 1::2] << 4


def _scale(weights: NDArray[np.float32], axis: int) -> NDArray[np.float32]:
    """The step that spreads each group's largest magnitude over 127 levels; 1 for a group of zeros."""
    largest = np.abs(weights).max(axis=axis, keepdims=True)
    return np.where(largest > 0, largest / 127, 1).astype(np.float32)


def _levels(weights: NDArray[np.float32], scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """Whole numbers from -127 to 127."""
    levels = weights / scale  # in place from here: an output head is the largest array of a conversion
    np.rint(levels, out=levels)
    return levels


def _middle(graph: ir.Graph) -> ir.Value:
    """The byte that stands for zero in rows of activations."""
    return constant(graph, "draftwise.middle", np.uint8(128))


def _constant_matmuls(graph: ir.Graph) -> Iterator[ir.Node]:
    return (n for n in graph if n.op_type == "MatMul" and n.inputs[1].const_value is not None)


def _replace(graph: ir.Graph, node: ir.Node, new: list[ir.Node]) -> None:
    """Put `new` in the place of `node`; the last of them gives its output, under the old name."""
    old, output = node.outputs[0], new[-1].outputs[0]
    output.type, output.shape, output.name = old.type, old.shape, old.name
    graph.insert_before(node, new)
    ir.convenience.replace_all_uses_with(old, output, replace_graph_outputs=True)
    graph.remove(node, safe=True)
