"""The options that every ONNX Runtime session is opened with."""

from functools import cache
from importlib.resources import files

import numpy as np
import onnxruntime as ort

from draftwise.checks import whole_number
from draftwise.errors import OptionError

PROVIDERS = ["CPUExecutionProvider"]
# A product of unsigned activations around 128 and signed weights, all 127; the test of this module makes it.
SATURATION = "saturation.onnx"
INNER = 64


def session_options(threads: int | None = None, *, repack: bool = True) -> ort.SessionOptions:
    """Options of a session on the processor; raises OptionError for `threads` below 1.

    `repack`: let ONNX Runtime rearrange the weights, which of a float model is a second copy in memory.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        if whole_number("threads", threads) < 1:
            raise OptionError(f"threads is {threads}; give at least 1.")
        options.intra_op_num_threads = threads
    # Threads that spin after a pass would take the cores from a draft model in the same process.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.add_session_config_entry("session.disable_prepacking", "0" if repack else "1")
    # Makes signed weights unsigned as they are loaded: exact on any processor, and half as fast.
    options.add_session_config_entry("session.x64quantprecision", "1" if saturates() else "0")
    return options


@cache
def saturates() -> bool:
    """Whether products of unsigned and signed bytes overflow here: x86 without integer dot products adds
    pairs of them in 16 bits.
    """
    probe = (files(__package__) / SATURATION).read_bytes()
    session = ort.InferenceSession(probe, providers=PROVIDERS)
    # A lone row, and several, have kernels of their own.
    products = [session.run(None, {"x": np.full((rows, INNER), 255, np.uint8)})[0] for rows in (1, 4)]
    return any(bool((product != INNER * 127 * 127).any()) for product in products)
