"""What a conversion lost: the negative log-likelihood of a fixed text, before and after."""

from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from draftwise.errors import UnsupportedError
from draftwise.models.onnx.manifest import NUM_LOGITS
from draftwise.models.onnx.options import PROVIDERS, session_options
from draftwise.tokenizer import Tokenizer

MAX_TOKENS = 800


@cache
def fixed_text() -> str:
    """English prose and Python source, written for this purpose."""
    return (files(__package__) / "fixed_text.txt").read_text(encoding="utf-8")


def surprises(
    graph: Path, tokenizer: Tokenizer, head_size: int, max_length: int, *, repack: bool
) -> NDArray[np.float64]:
    """Nats of each token of the fixed text, read in one pass without a cache.

    `repack`: as for `session_options`. Raises UnsupportedError for a graph that ONNX Runtime cannot run.
    """
    token_ids = np.array([tokenizer.encode(fixed_text())[: min(MAX_TOKENS, max_length)]], np.int64)
    feed: dict[str, NDArray[np.generic]] = {"input_ids": token_ids, "attention_mask": np.ones_like(token_ids)}
    try:
        session = ort.InferenceSession(graph, session_options(repack=repack), PROVIDERS)
        for value in session.get_inputs():
            if value.name == NUM_LOGITS:
                feed[NUM_LOGITS] = np.array([token_ids.shape[1]])
            elif value.name not in feed:
                feed[value.name] = np.zeros((1, value.shape[1], 0, head_size), np.float32)
        (logits,) = session.run(["logits"], feed)
    except Exception as error:  # ONNX Runtime's errors have no common base
        raise UnsupportedError(f"{tokenizer.name} does not run on ONNX Runtime ({error}).") from None
    return np.array(
        [_surprise(row, next_id) for row, next_id in zip(logits[0], token_ids[0, 1:], strict=False)]
    )


def _surprise(logits: np.ndarray, token_id: int) -> float:
    shifted = logits.astype(np.float64) - logits.max()
    return float(np.log(np.exp(shifted).sum()) - shifted[token_id])
