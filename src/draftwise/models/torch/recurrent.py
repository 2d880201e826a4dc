"""Recurrent and hybrid decoders as LanguageModels: they go back by snapshot and replay.

A recurrent state holds no tokens that could be forgotten one by one. So after each pass a copy of it is kept,
until it is known which tokens stay; then the latest copy of what stays is taken up, and the tokens after it
are fed again, in the pass that the next ones need anyway.
"""

import copy
import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer

from draftwise.errors import OptionError, UnsupportedError
from draftwise.models.base import Encoder, Tap
from draftwise.models.torch.base import TransformersModel, on_host
from draftwise.models.torch.engine import PIECE_WIDTH
from draftwise.tokenizer import Tokenizer
from draftwise.types import Logits, Source

# So many tokens that are sure to stay get a pass of their own, before the guesses: feeding them again after
# each rejection would cost more than the pass.
LONGEST_REPLAY = 16
MOST_SNAPSHOTS = 16  # of a row, between two times that it goes back: a draft model takes one for each guess
# Layers whose tensors are replaced and not written into, besides those of recurrent states, which are copied.
_COPIED = (DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer)
_PROBED = 24  # tokens
_log = logging.getLogger("draftwise")


class RecurrentModel(TransformersModel):
    """A decoder with recurrent layers, alone or among others, as the target or a draft model.

    It scores no trees and hands out no hidden states, and the rows of a batch go through it one by one. How
    it carries its state from pass to pass is tried out: some transformers models do so only to passes of one
    token (`one_by_one`). Raises UnsupportedError, naming the model, for one that does not do so at all.
    """

    scores_trees = False
    rows_share_passes = False
    encoder: Encoder | None = None
    one_by_one = False  # whether all passes but the first of a text are of one token

    def __init__(self, model: PreTrainedModel, tokenizer: Tokenizer | None = None, name: str = "") -> None:
        super().__init__(model, tokenizer, name)
        self._taken = inspect.signature(model.forward).parameters.keys()
        same = 1e-3 if model.dtype in (torch.float32, torch.float64) else 0.1
        try:
            if not self._carries_state(same):
                self.one_by_one = True
                if not self._carries_state(0.1):
                    raise ValueError("a text fed in parts gives other logits")
                _log.warning(
                    "%s carries its state over to passes of one token only: verifying guesses takes a pass "
                    "for each of them, which is no faster than plain decoding.",
                    self.name,
                )
        except Exception as error:  # a model with a cache of its own says so in its own way
            raise UnsupportedError(
                f"{self.name} is a {type(model).__name__}, whose state cannot go back over rejected tokens "
                f"({error}); give a model of another architecture."
            ) from error

    def refuse_unsupported(self, model: PreTrainedModel) -> None:
        """Raise UnsupportedError for a model whose state is not in a cache that can be copied."""
        if "cache" not in inspect.signature(model.forward).parameters:
            raise UnsupportedError(
                f"{self.name} is a {type(model).__name__}, whose state is in no cache of transformers and so "
                "cannot go back over rejected tokens; give a model of another architecture."
            )
        layers = DynamicCache(config=model.config.get_text_config(decoder=True)).layers
        odd = sorted({type(layer).__name__ for layer in layers if not isinstance(layer, _COPIED)})
        if odd:
            raise UnsupportedError(
                f"{self.name} keeps its state in a {odd[0]}, which cannot be copied to go back over rejected "
                "tokens; give a model of another architecture."
            )

    def _carries_state(self, finest: float) -> bool:
        """Whether a text gives the same logits when it is fed in parts, some of them twice.

        `finest`: what logits may differ by, over their standard deviation.
        """
        tokens = [7919 * number % self.vocab_size for number in range(1, _PROBED + 1)]
        whole, parts = self.open(1, _PROBED), self.open(1, _PROBED)
        (expected,) = whole.forward([tokens], [_PROBED])
        parts.forward([tokens[:2]], [1])
        parts.forward([[*tokens[2:4], *tokens[:2]]], [4])
        parts.keep(0, 3)
        wide, narrow = tokens[3:12], tokens[12:]
        logits = [*parts.forward([wide], [len(wide)])]
        logits += [parts.forward([[token_id]], [1])[0] for token_id in narrow]
        differences = np.abs(np.concatenate(logits) - expected[3:])
        return bool(differences.max() <= finest * expected.std())

    def open(
        self, num_sequences: int, max_length: int, *, width_invariant: bool = True, taps: Sequence[Tap] = ()
    ) -> "RecurrentState":
        """Allocate caches, as in `LanguageModel`; memory is taken as tokens come.

        Raises OptionError for a `max_length` beyond the model's, UnsupportedError for taps.
        """
        if taps:
            raise UnsupportedError(
                f"{self.name} is a recurrent model and hands out no hidden states, which this drafter reads; "
                "take another drafter."
            )
        if max_length > self.max_length:
            raise OptionError(
                f"max_length is {max_length}, but {self.name} holds {self.max_length} tokens; give less."
            )
        return RecurrentState(self, num_sequences, max_length)

    @torch.inference_mode()
    def score(self, token_ids: Sequence[int], start: int, num_logits: int, cache: DynamicCache) -> Logits:
        """Feed the tokens after `start` others; return the last ones' logits `[num_logits, vocabulary]`."""
        device = self.model.device
        offered = {
            "position_ids": torch.arange(start, start + len(token_ids), device=device)[None],
            # Of one position at least, as 0 asks for all.
            "logits_to_keep": max(1, num_logits),
        }
        logits = self.model(
            input_ids=torch.tensor([list(token_ids)], device=device),
            cache=cache,
            use_cache=True,
            **{key: value for key, value in offered.items() if key in self._taken},
        ).logits[0]
        return on_host(logits[len(logits) - num_logits :])


class RecurrentState:
    """The caches of several rows of one RecurrentModel; see ModelState."""

    def __init__(self, model: RecurrentModel, num_sequences: int, max_length: int) -> None:
        self._model = model
        self._max_length = max_length
        self._rows = [_Row(model) for _ in range(num_sequences)]

    @property
    def lengths(self) -> list[int]:
        return [len(row.token_ids) for row in self._rows]

    def begin(self, row: int, source: Source | None) -> None:
        self._rows[row] = _Row(self._model)

    def forward(
        self,
        token_ids: Sequence[Sequence[int]],
        num_logits: Sequence[int],
        parents: Sequence[Sequence[int] | None] | None = None,
    ) -> list[Logits]:
        """As `ModelState`; raises UnsupportedError for a tree, OptionError for more tokens than fit."""
        if any(tree is not None for tree in parents or ()):
            raise UnsupportedError(
                f"{self._model.name} has a recurrent state, which follows one text and no tree; draft chains."
            )
        for row, fed in zip(self._rows, token_ids, strict=True):
            if len(row.token_ids) + len(fed) > self._max_length:
                raise OptionError(
                    f"a row would hold {len(row.token_ids) + len(fed)} tokens, but {self._model.name} was "
                    f"opened for {self._max_length}; open it with a larger max_length."
                )
        return [
            row.forward(fed, wanted)
            for row, fed, wanted in zip(self._rows, token_ids, num_logits, strict=True)
        ]

    def copy(self, row: int, to: int) -> None:
        """Hold in the row `to` what `row` holds."""
        self._rows[to] = self._rows[row].copied()

    def keep(self, row: int, length: int) -> None:
        """Hold the first `length` tokens of the row and forget the rest; OptionError if it holds fewer."""
        held = len(self._rows[row].token_ids)
        if not 0 <= length <= held:
            raise OptionError(f"row {row} holds {held} tokens and cannot keep {length} of them.")
        self._rows[row].keep(length)

    def keep_path(self, row: int, length: int, path: Sequence[int]) -> None:
        """Hold the first tokens of the row; raises UnsupportedError for a path that leaves some out."""
        if list(path) != list(range(length, length + len(path))):
            raise UnsupportedError(
                f"{self._model.name} has a recurrent state, which cannot keep a path of a tree."
            )
        self.keep(row, length + len(path))

    def close(self) -> None:
        self._rows = []


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The layers of a cache after the first `length` tokens."""

    length: int
    layers: list[Any]


class _Row:
    """One sequence: its tokens, and snapshots of which the first is of those that are sure to stay."""

    def __init__(self, model: RecurrentModel) -> None:
        self.token_ids: list[int] = []
        self._model = model
        self._cache = DynamicCache(config=model.model.config.get_text_config(decoder=True))
        self._snapshots = [_Snapshot(0, _copied(self._cache.layers))]
        self._length = 0  # of the text that the cache is at

    def copied(self) -> "_Row":
        """The same in a cache of its own; passes leave snapshots as they are."""
        made = _Row(self._model)
        made.token_ids, made._snapshots, made._length = [*self.token_ids], [*self._snapshots], self._length
        made._cache.layers = _copied(self._cache.layers)
        return made

    def keep(self, length: int) -> None:
        del self.token_ids[length:]
        while self._snapshots[-1].length > length:
            self._snapshots.pop()
        # The empty text stays, for whoever goes back further than this.
        del self._snapshots[1:-1]

    def forward(self, token_ids: Sequence[int], num_logits: int) -> Logits:
        if not token_ids:
            return np.empty((0, self._model.vocab_size), np.float32)
        self.token_ids += token_ids
        end = len(self.token_ids)
        if self._length != self._snapshots[-1].length:
            self._length = self._snapshots[-1].length
            self._cache.layers = _copied(self._snapshots[-1].layers)
        first_guess = end - max(0, num_logits - 1)
        if self._model.one_by_one or first_guess - self._length > LONGEST_REPLAY:
            scored = [self._feed(first_guess, min(num_logits, 1)), self._feed(end, max(0, num_logits - 1))]
        else:
            scored = [self._feed(end, num_logits)]
        return np.concatenate([logits for logits in scored if len(logits)] or scored[:1])

    def _feed(self, end: int, num_logits: int) -> Logits:
        """Feed the tokens up to `end`, piece by piece, and take a snapshot there; the last ones' logits."""
        scored = [np.empty((0, self._model.vocab_size), np.float32)]
        while self._length < end:
            width = PIECE_WIDTH
            if self._model.one_by_one:
                width = 1 if self._length else end
            stop = min(self._length + width, end)
            wanted = max(0, min(stop - self._length, num_logits - (end - stop)))
            fed = self.token_ids[self._length : stop]
            scored.append(self._model.score(fed, self._length, wanted, self._cache))
            self._length = stop
        if self._snapshots[-1].length < end:
            self._snapshots.append(_Snapshot(end, _copied(self._cache.layers)))
            del self._snapshots[1:-MOST_SNAPSHOTS]
        return scored[-1] if len(scored) == 2 else np.concatenate(scored)


def _copied(layers: Sequence[Any]) -> list[Any]:
    """Layers that a pass through the others leaves as they are.

    Passes write into recurrent states, which are in dicts, and put new tensors in place of all others.
    """
    made = []
    for layer in layers:
        made.append(copy.copy(layer))
        for key, states in vars(layer).items():
            if isinstance(states, dict):
                copies = {
                    number: state.clone() if isinstance(state, torch.Tensor) else state
                    for number, state in states.items()
                }
                setattr(made[-1], key, copies)
    return made
