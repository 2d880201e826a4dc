"""LanguageModel on ONNX Runtime: key and value buffers bound once, going back is a shorter attention mask."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from draftwise.errors import ModelError, OptionError, UnsupportedError
from draftwise.models.base import Encoder, Tap, refuse_taps
from draftwise.models.onnx.manifest import NUM_LOGITS, Manifest
from draftwise.models.onnx.probe import remembered_width_invariant
from draftwise.tokenizer import Tokenizer
from draftwise.types import Logits, Source

# A prompt is read in pieces of this many tokens, which bounds the memory of attention scores.
PIECE = 256
# Kernels take positions in blocks of this many or of a multiple of it, and a lone one by another way.
BLOCK = 16
PAST, PRESENT = "past_key_values", "present"


class OnnxModel:
    """A converted decoder in one ONNX Runtime session.

    In a pass of one position ONNX Runtime takes another kernel, and the same position gets other bits; so it
    does for the last position of a wide pass where that is alone in attention's last block. There a
    width-invariant state feeds one more, whose logits are dropped and whose slot the next pass overwrites.
    `width_invariant` tells whether all passes give the same bits on this machine.
    """

    width_invariant = False  # until the probe has shown it
    scores_trees = False  # its attention takes no mask of a tree
    encoder: Encoder | None = None
    weight_bytes = 0  # of the file of weights; set by load_onnx

    def __init__(
        self, session: ort.InferenceSession, manifest: Manifest, tokenizer: Tokenizer, name: str
    ) -> None:
        self.session = session
        self.manifest = manifest
        self.tokenizer: Tokenizer | None = tokenizer
        self.name = name
        self.vocab_size = manifest.vocab_size
        self.max_length = manifest.max_length - 1  # the last position is for the one beside a lone token
        self.precision: str = manifest.layout
        self.eos_token_ids = tokenizer.eos_token_ids

    @property
    def runs_on(self) -> str:
        """Library, layout of the weights and threads: what the time of a pass depends on."""
        threads = self.session.get_session_options().intra_op_num_threads or os.cpu_count()
        return f"onnxruntime {ort.__version__}, {self.precision}, {threads} threads"

    def open(
        self, num_sequences: int, max_length: int, *, width_invariant: bool = True, taps: Sequence[Tap] = ()
    ) -> "OnnxState":
        """Allocate one cache for each row; the rows of a pass are scored one after the other.

        Raises OptionError for a `max_length` beyond the model's, UnsupportedError for taps.
        """
        refuse_taps(taps, self.name)
        if max_length > self.max_length:
            raise OptionError(
                f"max_length is {max_length}, but {self.name} holds {self.max_length} tokens; give less."
            )
        return OnnxState(self, num_sequences, max_length, width_invariant)


class OnnxState:
    """The caches of an OnnxModel's rows; see ModelState."""

    def __init__(self, model: OnnxModel, num_sequences: int, max_length: int, width_invariant: bool) -> None:
        self._model = model
        self._max_length = max_length
        self._width_invariant = width_invariant
        self._rows = [_Row(model, max_length) for _ in range(num_sequences)]

    @property
    def lengths(self) -> list[int]:
        return [row.length for row in self._rows]

    def forward(
        self,
        token_ids: Sequence[Sequence[int]],
        num_logits: Sequence[int],
        parents: Sequence[Sequence[int] | None] | None = None,
    ) -> list[Logits]:
        if parents is not None and any(row is not None for row in parents):
            raise UnsupportedError(
                f"{self._model.name} runs on ONNX Runtime, whose attention takes no tree mask; "
                "load it with engine='torch' to verify trees."
            )
        for row, fed in zip(self._rows, token_ids, strict=True):
            if row.length + len(fed) > self._max_length:
                raise OptionError(
                    f"a row would hold {row.length + len(fed)} tokens, but {self._model.name} was opened for "
                    f"{self._max_length}; open it with a larger max_length."
                )
        return [
            row.forward(fed, wanted, self._width_invariant)
            for row, fed, wanted in zip(self._rows, token_ids, num_logits, strict=True)
        ]

    def begin(self, row: int, source: Source | None) -> None:
        self.keep(row, 0)

    def keep(self, row: int, length: int) -> None:
        if not 0 <= length <= self._rows[row].length:
            raise OptionError(f"row {row} holds {self._rows[row].length} tokens; it cannot keep {length}.")
        self._rows[row].length = length

    def keep_path(self, row: int, length: int, path: Sequence[int]) -> None:
        if list(path) != list(range(length, length + len(path))):
            raise UnsupportedError(
                f"{self._model.name} runs on ONNX Runtime, which cannot keep a path of a tree."
            )
        self.keep(row, length + len(path))

    def close(self) -> None:
        self._rows = []


class _Row:
    """One sequence: its buffers, bound once, and how many of their positions are in use."""

    def __init__(self, model: OnnxModel, max_length: int) -> None:
        self._session = model.session
        self.length = 0
        room = max_length + 1  # for the second position beside a lone last token
        self._binding = self._session.io_binding()
        self._token_ids = np.zeros((1, PIECE + 1), np.int64)
        self._mask = np.ones((1, room), np.int64)
        self._num_logits = np.zeros(1, np.int64)
        self._logits = np.empty((0, model.vocab_size), np.float32)
        self._bind_input(NUM_LOGITS, self._num_logits)
        for past in self._session.get_inputs():
            if past.name.startswith(PAST):
                shape = (1, past.shape[1], room, model.manifest.head_size)
                cache = ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32))
                self._binding.bind_ortvalue_input(past.name, cache)
                self._binding.bind_ortvalue_output(past.name.replace(PAST, PRESENT), cache)

    def forward(self, token_ids: Sequence[int], num_logits: int, width_invariant: bool) -> Logits:
        if len(self._logits) < num_logits + 2:
            self._logits = np.empty((num_logits + 2, self._logits.shape[1]), np.float32)
        filled = 0
        for start in range(0, len(token_ids), PIECE):
            piece = token_ids[start : start + PIECE]
            wanted = min(len(piece), max(0, start + len(piece) - len(token_ids) + num_logits))
            self._pass(piece, wanted, self._logits[filled:], width_invariant)
            filled += wanted
        return self._logits[:num_logits]

    def _pass(self, token_ids: Sequence[int], num_logits: int, out: Logits, width_invariant: bool) -> None:
        """Score one piece; `out[:num_logits]` receives its last logits, two rows after them are scratch."""
        width = len(token_ids) + (width_invariant and len(token_ids) % BLOCK == 1)
        self._token_ids[0, : len(token_ids)] = token_ids
        self._num_logits[0] = max(1, num_logits + width - len(token_ids))
        self._bind_input("input_ids", self._token_ids[:, :width])
        self._bind_input("attention_mask", self._mask[:, : self.length + width])
        shape = (1, int(self._num_logits[0]), out.shape[1])
        self._binding.bind_output("logits", "cpu", 0, np.float32, shape, out.ctypes.data)
        self._session.run_with_iobinding(self._binding)
        self.length += len(token_ids)

    def _bind_input(self, name: str, array: NDArray[np.int64]) -> None:
        self._binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)


def load_onnx(folder: Path, *, threads: int | None = None, name: str | None = None) -> OnnxModel:
    """Load a folder that `draftwise convert` wrote; raises ModelError where it is not one or is not whole."""
    options = _session_options(threads)
    try:
        manifest = Manifest.read(folder)
        session = ort.InferenceSession(folder / "model.onnx", options, ["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors have no common base
        raise ModelError(
            f"{folder} is not a whole converted model ({error}); run `draftwise convert` again."
        ) from None
    name = name or manifest.name
    model = OnnxModel(session, manifest, Tokenizer.from_folder(folder, name), name)
    model.width_invariant = remembered_width_invariant(model, folder, threads)
    model.weight_bytes = sum(file.stat().st_size for file in folder.glob("model.onnx*"))
    return model


def _session_options(threads: int | None) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        if threads < 1:
            raise OptionError(f"threads is {threads}; give at least 1.")
        options.intra_op_num_threads = threads
    # Threads that spin after a pass would take the cores from a draft model in the same process.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options
