"""A transformers decoder as a LanguageModel."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from draftwise.errors import OptionError
from draftwise.models.base import Encoder, Tap
from draftwise.models.torch.architecture import horizons, refuse_unsupported
from draftwise.models.torch.base import TransformersModel, on_host
from draftwise.models.torch.cache import RowCache, Window
from draftwise.models.torch.feed import VIEW_STEP, Feed, Piece, cut
from draftwise.models.torch.hearing import Hearing, decoder_and_layers
from draftwise.models.torch.mask import attention_masks
from draftwise.models.torch.shallow import without_layers
from draftwise.tokenizer import Tokenizer
from draftwise.types import Logits, Source

# The most tokens of a row that go through the model at once: bounds the memory that a long prompt takes.
PIECE_WIDTH = 512


class TorchModel(TransformersModel):
    """A decoder-only transformers model as the target or a draft model.

    Raises UnsupportedError, naming the model, where its cache cannot go back or where the position and mask
    of a token cannot be given.
    """

    scores_trees = True
    rows_share_passes = True
    encoder: Encoder | None = None

    def __init__(self, model: PreTrainedModel, tokenizer: Tokenizer | None = None, name: str = "") -> None:
        super().__init__(model, tokenizer, name)
        config = model.config.get_text_config(decoder=True)
        self._horizons = horizons(config)
        # Eager attention adds its mask to the scores; the fused one is fastest with booleans.
        self._additive = model.dtype if config._attn_implementation == "eager" else None

    def refuse_unsupported(self, model: PreTrainedModel) -> None:
        """Raise UnsupportedError for a model that this class cannot run."""
        refuse_unsupported(model, self.name)

    def open(
        self, num_sequences: int, max_length: int, *, width_invariant: bool = True, taps: Sequence[Tap] = ()
    ) -> "TorchState":
        """Allocate caches, as in `LanguageModel`; memory is taken when the first token comes.

        Passes of different widths give the same logits up to rounding, whatever `width_invariant` asks for.
        Raises OptionError for a `max_length` or a tapped layer beyond the model's.
        """
        if max_length > self.max_length:
            raise OptionError(
                f"max_length is {max_length}, but {self.name} holds {self.max_length} tokens; give less."
            )
        state = self.new_state(num_sequences, max_length, Hearing(self.model, taps, self.name))
        for tap in taps:
            tap.state = state
        return state

    def new_state(self, num_sequences: int, max_length: int, hearing: Hearing) -> "TorchState":
        return TorchState(self, num_sequences, max_length, hearing)

    def new_cache(self, num_rows: int, num_slots: int) -> Any:
        """What `score` keeps its keys and values in: a RowCache or more than that."""
        return RowCache(num_rows, num_slots)

    def open_beside(self, num_sequences: int, max_length: int, tap: Tap) -> "SharedState":
        """Open a state in the cache of another model, once that has opened one with the tap.

        The other model has the same layers and maybe more of them.
        """
        return SharedState(self, num_sequences, max_length, tap)

    @property
    def num_layers(self) -> int:
        return len(decoder_and_layers(self.model, self.name)[1])

    def without_layers(self, skipped: Collection[int]) -> "TorchModel":
        """The same model, sharing its weights, without some of its layers, which count from 0.

        Raises OptionError for layers that are not there or where none is left.
        """
        _, layers = decoder_and_layers(self.model, self.name)
        if not set(skipped) < set(range(len(layers))):
            raise OptionError(
                f"layers {sorted(skipped)} cannot be left out of {self.name}, which has {len(layers)}; "
                "give some that it has, not all."
            )
        shallow = without_layers(self.model, layers, skipped)
        return TorchModel(shallow, self.tokenizer, f"{self.name} without {len(skipped)} layers")

    @torch.inference_mode()
    def score(self, piece: Piece, cache: Any) -> Logits:
        """Run one piece; return logits `[tokens wanted, vocabulary]`, row after row, in float32 or wider."""
        device = self.model.device
        cache.window = Window(piece.rows, torch.as_tensor(piece.slots, device=device), piece.view)
        logits = self.model(
            input_ids=torch.as_tensor(piece.token_ids, device=device),
            position_ids=torch.as_tensor(piece.positions, device=device),
            attention_mask=attention_masks(piece, self._horizons, device, self._additive),
            cache=cache,
            use_cache=True,
            logits_to_keep=torch.as_tensor(piece.wanted, device=device),
        ).logits
        return on_host(logits)


class TorchState:
    """The caches of several rows of one TorchModel."""

    def __init__(self, model: TorchModel, num_sequences: int, max_length: int, hearing: Hearing) -> None:
        self._model = model
        self._hearing = hearing
        self._max_length = max_length
        self._num_slots = -(-(max_length + 1) // VIEW_STEP) * VIEW_STEP  # at least one is left for padding
        self._cache = model.new_cache(num_sequences, self._num_slots)
        self._lengths = [0] * num_sequences

    @property
    def lengths(self) -> Sequence[int]:
        """Tokens held for each row."""
        return tuple(self._lengths)

    def begin(self, row: int, source: Source | None) -> None:
        """Hold a new sequence in this row, and forget the one before."""
        self._lengths[row] = 0

    def forward(
        self,
        token_ids: Sequence[Sequence[int]],
        num_logits: Sequence[int],
        parents: Sequence[Sequence[int] | None] | None = None,
    ) -> list[Logits]:
        """Append tokens and score the last ones, as in `ModelState`.

        After a tree, `keep` or `keep_path` says which of its tokens remain before the row is fed again.
        Raises OptionError, before anything is done, if a row would hold more than its cache was opened for.
        """
        feeds = [
            Feed.of(*row)
            for row in zip(
                self._lengths, token_ids, num_logits, parents or [None] * len(token_ids), strict=True
            )
        ]
        for row, feed in enumerate(feeds):
            if feed.end > self._max_length:
                raise OptionError(
                    f"row {row} would hold {feed.end} tokens, but {self._model.name} was opened for "
                    f"{self._max_length}; open it with a larger max_length."
                )
        scored: list[list[Logits]] = [[] for _ in feeds]
        self._hearing.begin(len(feeds))
        for piece in cut(feeds, PIECE_WIDTH, self._num_slots):
            with self._hearing.of(piece.rows):
                logits = self._model.score(piece, self._cache)
            ends = piece.wanted.sum(axis=1).cumsum()
            for parts, part in zip(scored[piece.rows], np.split(logits, ends[:-1]), strict=True):
                parts.append(part)
        self._hearing.end([len(feed) for feed in feeds])
        self._lengths = [feed.end for feed in feeds]
        nothing = np.empty((0, self._model.vocab_size), np.float32)
        return [parts[0] if len(parts) == 1 else np.concatenate([nothing, *parts]) for parts in scored]

    @torch.inference_mode()
    def copy(self, row: int, to: int) -> None:
        """Hold in the row `to` what `row` holds."""
        self._cache.copy(row, to, self._lengths[row])
        self._hearing.copy(row, to)
        self._lengths[to] = self._lengths[row]

    def keep(self, row: int, length: int) -> None:
        """Hold the first `length` tokens of the row and forget the rest; OptionError if it holds fewer."""
        if not 0 <= length <= self._lengths[row]:
            raise OptionError(
                f"row {row} holds {self._lengths[row]} tokens and cannot keep {length} of them."
            )
        self._lengths[row] = length

    @torch.inference_mode()
    def keep_path(self, row: int, length: int, path: Sequence[int]) -> None:
        """Hold the first `length` tokens and, after them, those at the slots `path`, from the root down."""
        if any(not length <= slot < self._lengths[row] for slot in path):
            raise OptionError(
                f"row {row} holds {self._lengths[row]} tokens and cannot keep slots {list(path)}."
            )
        self.keep(row, length + len(path))
        in_place = next((i for i, slot in enumerate(path) if slot != length + i), len(path))
        if in_place < len(path):
            self._cache.move(row, path[in_place:], length + in_place)

    def close(self) -> None:
        """Release the buffers; idempotent. A closed state has no rows left."""
        self._cache, self._lengths = self._model.new_cache(0, 0), []


class SharedState(TorchState):
    """Tokens of its own after those that another state holds, in its cache: what is written here, that state
    writes over next. Before there is such a state, it has a cache of its own.
    """

    def __init__(self, model: TorchModel, num_sequences: int, max_length: int, tap: Tap) -> None:
        super().__init__(model, num_sequences, max_length, Hearing(model.model, (), model.name))
        self._tap = tap

    def keep(self, row: int, length: int) -> None:
        """Hold the first `length` tokens of the row, or as many more as the other state does."""
        owner = self._tap.state
        if isinstance(owner, TorchState):
            self._cache, self._num_slots = owner._cache, owner._num_slots
            length = max(length, owner.lengths[row])
            self._lengths[row] = max(length, self._lengths[row])
        super().keep(row, length)
