"""An n-gram model of the very text that it is asked to continue, counted as that grows."""

from collections.abc import Sequence

import numpy as np

from draftwise.checks import whole_number
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.ngram import NgramModel
from draftwise.errors import UnsupportedError
from draftwise.models.base import Encoder, Tap, refuse_taps
from draftwise.tokenizer import Tokenizer
from draftwise.types import Logits, Source

_Counts = dict[tuple[int, ...], dict[int, int]]


class OnlineNgramModel:
    """Counts each row's own tokens; a state that goes back forgets what it counted there.

    Witten-Bell interpolation, as in `NgramModel`, of all orders up to `order`, over `prior`: a counted
    model of other texts, or None for one that knows nothing. Logits are float32. Raises OptionError for an
    order below 1.
    """

    width_invariant = True
    max_length = 1 << 30
    scores_trees = False
    only_drafts = False
    rows_share_passes = False
    encoder: Encoder | None = None
    eos_token_ids: frozenset[int] = frozenset()
    tokenizer: Tokenizer | None = None  # it knows no words, so it goes with any

    def __init__(self, vocab_size: int, order: int = 4, prior: NgramModel | None = None) -> None:
        whole_number("the order of an n-gram model", order, least=1)
        self.name = f"online {order}-gram"
        self.vocab_size = whole_number("vocab_size", vocab_size, least=1)
        self.order = order
        self.prior = prior

    def open(
        self, num_sequences: int, max_length: int, *, width_invariant: bool = True, taps: Sequence[Tap] = ()
    ) -> "OnlineNgramState":
        """Open a state; raises UnsupportedError for taps, as there are no hidden states."""
        refuse_taps(taps, self.name)
        return OnlineNgramState(self, num_sequences)

    def drafter(self, num_draft_tokens: int = 4) -> DraftModel:
        """It as a drafter."""
        return DraftModel(self, num_draft_tokens=num_draft_tokens)


class OnlineNgramState:
    """The tokens of each row, and what followed what in them."""

    def __init__(self, model: OnlineNgramModel, num_sequences: int) -> None:
        self._rows = [_Row(model) for _ in range(num_sequences)]

    @property
    def lengths(self) -> list[int]:
        return [len(row.token_ids) for row in self._rows]

    def forward(
        self,
        token_ids: Sequence[Sequence[int]],
        num_logits: Sequence[int],
        parents: Sequence[Sequence[int] | None] | None = None,
    ) -> list[Logits]:
        """Count tokens and score what follows the last ones; raises UnsupportedError for a tree."""
        if any(tree is not None for tree in parents or ()):
            raise UnsupportedError("an n-gram model that counts online scores no trees; give it chains.")
        return [
            row.forward(tokens, count)
            for row, tokens, count in zip(self._rows, token_ids, num_logits, strict=True)
        ]

    def begin(self, row: int, source: Source | None) -> None:
        self.keep(row, 0)

    def copy(self, row: int, to: int) -> None:
        self.begin(to, None)
        self._rows[to].forward(self._rows[row].token_ids, 0)

    def keep(self, row: int, length: int) -> None:
        self._rows[row].keep(length)

    def keep_path(self, row: int, length: int, path: Sequence[int]) -> None:
        tail = [self._rows[row].token_ids[slot] for slot in path]
        self.keep(row, length)
        self._rows[row].forward(tail, 0)

    def close(self) -> None:
        self._rows.clear()


class _Row:
    def __init__(self, model: OnlineNgramModel) -> None:
        self.token_ids: list[int] = []
        self._model = model
        self._unigrams = np.zeros(model.vocab_size, np.float32)
        self._num_distinct = 0
        self._following: _Counts = {}  # by the one to `order` - 1 tokens before

    def forward(self, token_ids: Sequence[int], num_logits: int) -> Logits:
        scored = np.empty((num_logits, self._model.vocab_size), np.float32)
        first = len(token_ids) - num_logits
        for number, token_id in enumerate(token_ids):
            self._append(token_id)
            if number >= first:
                scored[number - first] = self._logits()
        return scored

    def keep(self, length: int) -> None:
        while len(self.token_ids) > length:
            token_id = self.token_ids.pop()
            self._unigrams[token_id] -= 1
            self._num_distinct -= not self._unigrams[token_id]
            for context in self._contexts():
                counts = self._following[context]
                counts[token_id] -= 1
                if not counts[token_id]:
                    del counts[token_id]
                if not counts:
                    del self._following[context]

    def _append(self, token_id: int) -> None:
        for context in self._contexts():
            counts = self._following.setdefault(context, {})
            counts[token_id] = counts.get(token_id, 0) + 1
        self._num_distinct += not self._unigrams[token_id]
        self._unigrams[token_id] += 1
        self.token_ids.append(token_id)

    def _contexts(self) -> list[tuple[int, ...]]:
        """The last token, the last two, and so on."""
        recent = tuple(self.token_ids[-(self._model.order - 1) :]) if self._model.order > 1 else ()
        return [recent[start:] for start in range(len(recent) - 1, -1, -1)]

    def _logits(self) -> Logits:
        seen = [counts for context in self._contexts() if (counts := self._following.get(context))]
        share = 1.0  # of the probability that the longer contexts leave to the shorter ones
        terms = []
        for counts in reversed(seen):
            weight = len(counts) + sum(counts.values())
            terms.append((list(counts), share / weight * np.array(list(counts.values()), np.float32)))
            share *= len(counts) / weight
        prior = self._model.prior
        unseen = np.exp(prior.logits_after(self.token_ids)) if prior else 1 / self._model.vocab_size
        weight = self._num_distinct + len(self.token_ids)
        probs = (self._unigrams + np.float32(self._num_distinct) * unseen) * np.float32(share / weight)
        for token_ids, added in terms:
            probs[token_ids] += added
        logits: Logits = np.log(probs)
        return logits
