"""Whether a model gives the same bits at every pass width on this machine: tried, and remembered."""

import json
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnxruntime as ort

from draftwise.models.base import LanguageModel
from draftwise.models.machine import processor

PROBE = "width_invariance.json"
MAX_WIDTH = 17
CONTEXT = 145  # less for a model that holds less
# Where to cut the context: nowhere, and so that pieces end in a lone position for some size of block.
CUTS = ((1, 4, 11, 28, 61, 126), (129,), ())


def width_invariant(model: LanguageModel) -> bool:
    """Score one text in passes of every width from 1 to 17, after a context read in various pieces.

    True if no bit of any position's logits differs.
    """
    context = min(CONTEXT, model.max_length - MAX_WIDTH)
    length = context + MAX_WIDTH
    token_ids = [7919 * (position + 1) % model.vocab_size for position in range(length)]
    with closing(model.open(1, length)) as state:
        whole = state.forward([token_ids], [MAX_WIDTH])[0].copy()
        for cuts in CUTS:
            state.keep(0, 0)
            for start, end in pairwise([0, *(cut for cut in cuts if cut < context), context]):
                state.forward([token_ids[start:end]], [1])
            logits = state.forward([token_ids[context:]], [MAX_WIDTH])[0]
            if not np.array_equal(logits, whole):
                return False
        for width in range(1, MAX_WIDTH):
            state.keep(0, context)
            logits = state.forward([token_ids[context : context + width]], [width])[0]
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
