"""An output layer of few tokens: a small draft model then reads much less for each token."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from draftwise.models.onnx.constants import constant
from draftwise.models.onnx.manifest import NUM_LOGITS


def restrict(graph: ir.Graph, head: ir.Node, token_ids: Sequence[int]) -> None:
    """Let a graph compute the logits of some tokens only; those of all others are -inf.

    A drafter that never guesses the others is as exact as before (FR-Spec, 2502.14856; VocabTrim,
    2506.22694). `head` is the output layer, in float32; `token_ids` are in order, each once.
    """
    logits, size = graph.outputs[0], head.inputs[1].shape[1]
    node = head
    while True:
        for index, weights in enumerate(node.inputs):  # of the output layer; its bias, if it has one
            if weights.const_value is not None and weights.shape and weights.shape[-1] == size:
                known = weights.const_value.numpy()[..., token_ids]
                node.replace_input_with(index, constant(graph, f"{weights.name}.known", known))
        (value,) = node.outputs
        value.shape = None
        if value is logits:
            break
        (usage,) = value.uses()
        node = usage.node

    place = np.full(size, len(token_ids), np.int32)  # of the others: behind those that are known
    place[token_ids] = np.arange(len(token_ids))
    pads = constant(graph, "draftwise.one_more", np.array([0, 0, 0, 0, 0, 1]))
    padded = ir.node("Pad", [logits, pads, constant(graph, "draftwise.never", np.float32(-np.inf))])
    spread = ir.node(
        "Gather", [padded.outputs[0], constant(graph, "draftwise.place", place)], attributes={"axis": 2}
    )
    graph.extend([padded, spread])
    (whole,) = spread.outputs
    whole.name, logits.name = logits.name, f"{logits.name}.known"
    whole.type, whole.shape = logits.type, ir.Shape([1, NUM_LOGITS, size])
    graph.outputs[0] = whole
