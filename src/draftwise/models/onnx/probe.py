"""Whether a model gives the same bits at every pass width on this machine: tried, and remembered."""

import json
from contextlib import closing, suppress
from itertools import accumulate
from pathlib import Path

import numpy as np
import onnxruntime as ort

from draftwise.models.base import LanguageModel
from draftwise.models.machine import processor

PROBE = "width_invariance.json"
MAX_WIDTH = 17
CONTEXT = 145
# Ways to read the context: in one piece, and in pieces that end in a lone position for some size of block.
PIECES = ((1, 3, 7, 17, 33, 65, 19), (129, 16), (CONTEXT,))


def width_invariant(model: LanguageModel) -> bool:
    """Score one text in passes of every width from 1 to 17, after a context read in various pieces.

    True if no bit of any position's logits differs.
    """
    length = CONTEXT + MAX_WIDTH
    token_ids = [7919 * (position + 1) % model.vocab_size for position in range(length)]
    with closing(model.open(1, length)) as state:
        whole = state.forward([token_ids], [MAX_WIDTH])[0].copy()
        for pieces in PIECES:
            state.keep(0, 0)
            for end, width in zip(accumulate(pieces), pieces, strict=True):
                state.forward([token_ids[end - width : end]], [1])
            logits = state.forward([token_ids[CONTEXT:]], [MAX_WIDTH])[0]
            if not np.array_equal(logits, whole):
                return False
        for width in range(1, MAX_WIDTH):
            state.keep(0, CONTEXT)
            logits = state.forward([token_ids[CONTEXT : CONTEXT + width]], [width])[0]
            if not np.array_equal(logits, whole[:width]):
                return False
    return True


def remembered_width_invariant(model: LanguageModel, folder: Path, threads: int | None) -> bool:
    """The answer of `width_invariant`, kept for each machine in the model's folder if that can be written."""
    machine = f"{processor()}, {threads or 'all'} threads, onnxruntime {ort.__version__}"
    try:
        answers = json.loads((folder / PROBE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        answers = {}
    if machine not in answers:
        answers[machine] = width_invariant(model)
        with suppress(OSError):  # a read-only folder is probed at every load
            (folder / PROBE).write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")
    return bool(answers[machine])
