"""A draft model that speaks the target's tokens: token-level intersection (TLI, 2502.05202, Algorithm 4)."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from draftwise.drafters.translation.pieces import Translation
from draftwise.errors import ModelError, TokenizerMismatchError
from draftwise.models.base import Encoder, LanguageModel, ModelState, Tap, refuse_no_model, refuse_taps
from draftwise.types import Logits, Source


class TranslatedModel:
    """A language model with another tokenizer, as one over the target's tokens: for `DraftModel` and its kin.

    Its distribution is the model's own, restricted to the tokens that both vocabularies spell alike and
    renormalised. A token of the target that the model lacks is read as the model's tokens for its text.
    Raises TokenizerMismatchError where one of the two has no tokenizer, or they share no token, and
    UnsupportedError where the model has an encoder.
    """

    encoder: Encoder | None = None
    only_drafts = True

    def __init__(self, model: LanguageModel, target: LanguageModel) -> None:
        refuse_no_model("model", model)
        refuse_no_model("target", target)
        self.model = model
        self.translation = Translation.between(target, model)
        ours, theirs = self.translation.target.ids, self.translation.draft.ids
        shared = sorted((ours[text], theirs[text]) for text in ours.keys() & theirs.keys())
        if not shared:
            raise TokenizerMismatchError(
                f"{model.name} and {target.name} share no token; take a TextDraftModel, which needs none."
            )
        self.shared = dict(shared)  # the model's ids of the target's tokens
        self._columns = np.array(list(self.shared)), np.array(list(self.shared.values()))
        self._read: dict[int, list[int]] = {token_id: [own] for token_id, own in shared}
        self.name = f"{model.name} (TLI)"
        self.tokenizer = target.tokenizer
        self.vocab_size = target.vocab_size
        self.eos_token_ids = target.eos_token_ids
        self.max_length = model.max_length - len(self.translation.leading_ids)
        self.width_invariant = model.width_invariant
        self.scores_trees = model.scores_trees
        self.rows_share_passes = model.rows_share_passes

    @property
    def weight_bytes(self) -> int:
        """Bytes of the model's weights; 0 where that is unknown."""
        return getattr(self.model, "weight_bytes", 0)

    def read(self, token_id: int) -> list[int]:
        """The model's tokens for a token of the target; none where they cannot spell it."""
        if token_id not in self._read:
            text = self.translation.target.text([token_id])
            self._read[token_id] = self.translation.draft.tile(text)
        return self._read[token_id]

    def spread(self, logits: Logits) -> Logits:
        """Logits `[positions, vocabulary]` of the model over the target's tokens; -inf for those it lacks."""
        ours, theirs = self._columns
        wide: Logits = np.full((len(logits), self.vocab_size), -np.inf, logits.dtype)
        wide[:, ours] = logits[:, theirs]
        return wide

    def open(
        self, num_sequences: int, max_length: int, *, width_invariant: bool = True, taps: Sequence[Tap] = ()
    ) -> "TranslatedState":
        """Open a state of the model; raises UnsupportedError for taps, whose layers are not the target's."""
        refuse_taps(taps, self.name)
        capacity = min(self.model.max_length, self.translation.capacity(max_length))
        state = self.model.open(num_sequences, capacity, width_invariant=width_invariant)
        return TranslatedState(self, state, num_sequences, max_length, capacity)


class TranslatedState:
    """A state of the model, with the slots of the target's tokens laid over its own.

    Where its cache is short of room, a token that the model spells with several is read as the last of them.
    """

    def __init__(
        self, model: TranslatedModel, state: ModelState, num_sequences: int, max_length: int, capacity: int
    ) -> None:
        """`max_length`: of a row, in the target's tokens; `capacity`: in those of the model."""
        self._model = model
        self._state = state
        self._max_length = max_length
        self._spare = capacity - max_length
        # Of each row, where the model's tokens end for each of the target's.
        self._ends: list[list[int]] = [[] for _ in range(num_sequences)]

    @property
    def lengths(self) -> list[int]:
        return [len(ends) for ends in self._ends]

    def begin(self, row: int, source: Source | None) -> None:
        self._state.begin(row, None)
        self._ends[row].clear()

    def forward(
        self,
        token_ids: Sequence[Sequence[int]],
        num_logits: Sequence[int],
        parents: Sequence[Sequence[int] | None] | None = None,
    ) -> list[Logits]:
        """As the protocol says, over the target's tokens; raises ModelError where they do not fit."""
        for length, tokens in zip(self.lengths, token_ids, strict=True):
            if length + len(tokens) > self._max_length:
                raise ModelError(
                    f"{self._model.name} holds {length} of {self._max_length} tokens; "
                    f"{len(tokens)} more do not fit."
                )
        read = [list(self._translated(row, tokens)) for row, tokens in enumerate(token_ids)]
        ends = [list(accumulate(map(len, words))) for words in read]
        # The logits of a token are those after the last of the model's for it.
        wanted = [row[len(row) - count :] for row, count in zip(ends, num_logits, strict=True)]
        logits = self._state.forward(
            [[own for word in words for own in word] for words in read],
            [last[-1] - last[0] + 1 if last else 0 for last in wanted],
            parents
            and [
                None if tree is None else _chained(tree, row) for tree, row in zip(parents, ends, strict=True)
            ],
        )
        for held, row in zip(self._ends, ends, strict=True):
            held += [end + (held[-1] if held else 0) for end in row]
        return [
            self._model.spread(scores[[end - last[0] for end in last]])
            for scores, last in zip(logits, wanted, strict=True)
        ]

    def _translated(self, row: int, token_ids: Sequence[int]) -> Iterator[list[int]]:
        ends = self._ends[row]
        spare = self._spare - (ends[-1] - len(ends) if ends else 0)
        leading = [] if ends else self._model.translation.leading_ids
        for token_id in token_ids:
            words = [*leading, *self._model.read(token_id)] or [0]  # a slot for each token, if of no meaning
            words = words[max(0, len(words) - 1 - spare) :]
            spare -= len(words) - 1
            leading = []
            yield words

    def copy(self, row: int, to: int) -> None:
        self._state.copy(row, to)
        self._ends[to] = self._ends[row].copy()

    def keep(self, row: int, length: int) -> None:
        self._state.keep(row, self._ends[row][length - 1] if length else 0)
        del self._ends[row][length:]

    def keep_path(self, row: int, length: int, path: Sequence[int]) -> None:
        starts = [0, *self._ends[row]]
        spans = [range(starts[slot], starts[slot + 1]) for slot in path]
        self._state.keep_path(row, starts[length], [own for span in spans for own in span])
        lengths = accumulate(map(len, spans), initial=starts[length])
        self._ends[row][length:] = list(lengths)[1:]

    def close(self) -> None:
        self._state.close()


def _chained(parents: Sequence[int], ends: Sequence[int]) -> list[int]:
    """The parents in a tree whose nodes are chains; `ends`: where each chain ends."""
    starts = [0, *ends]
    return [
        own - 1 if own > start else starts[parent + 1] - 1
        for parent, start, end in zip(parents, starts, ends, strict=False)
        for own in range(start, end)
    ]
