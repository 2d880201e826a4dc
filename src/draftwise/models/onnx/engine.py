"""LanguageModel on ONNX Runtime: key and value buffers bound once, going back is a shorter attention mask."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from draftwise.errors import ModelError, OptionError, UnsupportedError
from draftwise.models.base import Encoder, Tap
from draftwise.models.onnx.manifest import NUM_LOGITS, SHARED_WEIGHTS, Manifest, hidden_state_name
from draftwise.models.onnx.options import PROVIDERS, session_options
from draftwise.models.onnx.probe import remembered_width_invariant
from draftwise.tokenizer import Tokenizer
from draftwise.types import Logits, Source

# A prompt is read in pieces of this many tokens, which bounds the memory of attention scores.
PIECE = 256
# Kernels take positions in blocks of this many or of a multiple of it, and a lone one by another way.
BLOCK = 16
PAST, PRESENT = "past_key_values", "present"
Hidden = NDArray[np.float32]


class OnnxModel:
    """A converted decoder in one ONNX Runtime session.

    In a pass of one position ONNX Runtime takes another kernel, and the same position gets other bits; so it
    does for the last position of a wide pass where that is alone in attention's last block. There a
    width-invariant state feeds one more, whose logits are dropped and whose slot the next pass overwrites.
    `width_invariant` tells whether all passes give the same bits on this machine.
    """

    width_invariant = False  # until the probe has shown it
    shortest_pass = 2  # positions: a target's lone token has one more beside it
    scores_trees = False  # its attention takes no mask of a tree
    rows_share_passes = False
    encoder: Encoder | None = None
    weight_bytes = 0  # of the file of weights; set by load_onnx
    shared_weights: Path | None = None  # what heads share with it; set by load_onnx where it is there

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
        self.only_drafts = manifest.only_drafts
        self.eos_token_ids = tokenizer.eos_token_ids
        names = [each.name for each in session.get_inputs()]
        self.num_layers = sum(name.startswith(PAST) for name in names) // 2  # a layer has keys and values

    @property
    def runs_on(self) -> str:
        """Library, layout of the weights and threads: what the time of a pass depends on."""
        threads = self.session.get_session_options().intra_op_num_threads or os.cpu_count()
        return f"onnxruntime {ort.__version__}, {self.precision}, {threads} threads"

    def open(
        self, num_sequences: int, max_length: int, *, width_invariant: bool = True, taps: Sequence[Tap] = ()
    ) -> "OnnxState":
        """Allocate one cache for each row; the rows of a pass are scored one after the other.

        Raises OptionError for a `max_length` beyond the model's, UnsupportedError for taps of hidden states
        that it was converted without.
        """
        outputs = {each.name: each.shape[-1] for each in self.session.get_outputs()}
        read = {hidden_state_name(n, self.num_layers): n for tap in taps for n in tap.layers}
        if not read.keys() <= outputs.keys():
            numbers = ",".join(map(str, sorted(read.values())))
            raise UnsupportedError(
                f"{self.name} was converted without hidden states that this drafter reads; convert it again "
                f"with --hidden-states={numbers}, or load it with the torch engine."
            )
        if max_length > self.max_length:
            raise OptionError(
                f"max_length is {max_length}, but {self.name} holds {self.max_length} tokens; give less."
            )
        state = OnnxState(
            self, num_sequences, max_length, width_invariant, taps, {name: outputs[name] for name in read}
        )
        for tap in taps:
            tap.state = state
        return state


class OnnxState:
    """The caches of an OnnxModel's rows; see ModelState."""

    def __init__(
        self,
        model: OnnxModel,
        num_sequences: int,
        max_length: int,
        width_invariant: bool,
        taps: Sequence[Tap],
        hidden_widths: Mapping[str, int],
    ) -> None:
        self._model = model
        self._max_length = max_length
        self._width_invariant = width_invariant
        self._taps = taps
        self._rows = [_Row(model, max_length, hidden_widths) for _ in range(num_sequences)]

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
        logits = [
            row.forward(fed, wanted, self._width_invariant)
            for row, fed, wanted in zip(self._rows, token_ids, num_logits, strict=True)
        ]
        for tap in self._taps:
            names = [hidden_state_name(number, self._model.num_layers) for number in tap.layers]
            tap.rows = [[row.hidden[name] for name in names] for row in self._rows]
        return logits

    def begin(self, row: int, source: Source | None) -> None:
        self.keep(row, 0)

    def copy(self, row: int, to: int) -> None:
        self._rows[to].copy(self._rows[row])
        for tap in self._taps:
            tap.rows = [tap.rows[row if index == to else index] for index in range(len(self._rows))]

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

    def __init__(self, model: OnnxModel, max_length: int, hidden_widths: Mapping[str, int]) -> None:
        self._session = model.session
        self.length = 0
        self._hidden_widths = hidden_widths  # of the outputs that somebody reads
        self.hidden: dict[str, Hidden] = {}  # of the tokens that the last pass was fed, `[tokens, width]`
        room = max_length + 1  # for the second position beside a lone last token
        self._binding = self._session.io_binding()
        self._token_ids = np.zeros((1, PIECE + 1), np.int64)
        self._mask = np.ones((1, room), np.int64)
        self._num_logits = np.zeros(1, np.int64)
        self._logits = np.empty((0, model.vocab_size), np.float32)
        self._bind_input(NUM_LOGITS, self._num_logits)
        self._caches: list[ort.OrtValue] = []
        for past in self._session.get_inputs():
            if past.name.startswith(PAST):
                shape = (1, past.shape[1], room, model.manifest.head_size)
                cache = ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32))
                self._binding.bind_ortvalue_input(past.name, cache)
                self._binding.bind_ortvalue_output(past.name.replace(PAST, PRESENT), cache)
                self._caches.append(cache)

    def forward(self, token_ids: Sequence[int], num_logits: int, width_invariant: bool) -> Logits:
        if len(self._logits) < num_logits + 2:
            self._logits = np.empty((num_logits + 2, self._logits.shape[1]), np.float32)
        room = len(token_ids) + 1  # for the position beside a lone last token
        hidden = {name: np.empty((room, width), np.float32) for name, width in self._hidden_widths.items()}
        filled = 0
        for start in range(0, len(token_ids), PIECE):
            piece = token_ids[start : start + PIECE]
            wanted = min(len(piece), max(0, start + len(piece) - len(token_ids) + num_logits))
            heard = {name: states[start:] for name, states in hidden.items()}
            self._pass(piece, wanted, self._logits[filled:], heard, width_invariant)
            filled += wanted
        self.hidden = {name: states[: len(token_ids)] for name, states in hidden.items()}
        return self._logits[:num_logits]

    def copy(self, other: "_Row") -> None:
        """Hold what another row holds."""
        self.length, self.hidden = other.length, other.hidden
        for cache, source in zip(self._caches, other._caches, strict=True):
            cache.update_inplace(source.numpy())

    def _pass(
        self,
        token_ids: Sequence[int],
        num_logits: int,
        out: Logits,
        hidden: Mapping[str, Hidden],
        width_invariant: bool,
    ) -> None:
        """Score one piece; `out[:num_logits]` receives its last logits, two rows after them are scratch.

        `hidden` receives the hidden states of its tokens, and one row after them is scratch.
        """
        width = len(token_ids) + (width_invariant and len(token_ids) % BLOCK == 1)
        self._token_ids[0, : len(token_ids)] = token_ids
        self._num_logits[0] = max(1, num_logits + width - len(token_ids))
        self._bind_input("input_ids", self._token_ids[:, :width])
        self._bind_input("attention_mask", self._mask[:, : self.length + width])
        self._bind_output("logits", out[: self._num_logits[0]])
        for name, states in hidden.items():
            self._bind_output(name, states[:width])
        self._session.run_with_iobinding(self._binding)
        self.length += len(token_ids)

    def _bind_input(self, name: str, array: NDArray[np.int64]) -> None:
        self._binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)

    def _bind_output(self, name: str, rows: NDArray[np.float32]) -> None:
        self._binding.bind_output(name, "cpu", 0, np.float32, (1, *rows.shape), rows.ctypes.data)


def load_onnx(folder: Path, *, threads: int | None = None, name: str | None = None) -> OnnxModel:
    """Load a folder that `draftwise convert` wrote; raises ModelError where it is not one or is not whole."""
    options = session_options(threads)
    try:
        manifest = Manifest.read(folder)
        session = ort.InferenceSession(folder / "model.onnx", options, PROVIDERS)
    except Exception as error:  # ONNX Runtime's errors have no common base
        raise ModelError(
            f"{folder} is not a whole converted model ({error}); run `draftwise convert` again."
        ) from None
    name = name or manifest.name
    model = OnnxModel(session, manifest, Tokenizer.from_folder(folder, name), name)
    model.width_invariant = remembered_width_invariant(model, folder, threads)
    shared = folder / SHARED_WEIGHTS
    model.shared_weights = shared if shared.is_file() else None
    model.weight_bytes = sum(file.stat().st_size for file in folder.glob("model.onnx*"))
    return model
