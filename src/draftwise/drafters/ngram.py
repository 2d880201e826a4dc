"""Counted language models of any order: drafters that cost next to nothing (2211.17192, section 3.6)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from draftwise.checks import whole_number
from draftwise.drafters.draft_model import DraftModel
from draftwise.errors import ModelError, OptionError, TokenizerMismatchError
from draftwise.models.base import Encoder, Tap, refuse_taps
from draftwise.models.context import ContextState
from draftwise.sampling.distribution import likeliest
from draftwise.tokenizer import Tokenizer
from draftwise.types import Logits

_FORMAT = "draftwise n-gram 1"
_FIELDS = ("contexts", "starts", "token_ids", "counts")


@dataclass(frozen=True, slots=True)
class Level:
    """What followed each context of one length, in sorted arrays.

    A context goes by a number, its place in `contexts`, and is found by a key: the number of the context
    without its earliest token, times the vocabulary, plus that token.
    """

    contexts: NDArray[np.int64]  # [contexts], their keys
    starts: NDArray[np.int64]  # [contexts + 1], where what followed each one begins
    token_ids: NDArray[np.int32]  # [n-grams], the tokens that followed
    counts: NDArray[np.int32]  # [n-grams], how often each did

    def find(self, key: int) -> int | None:
        """The number of a context; None if it was never seen."""
        at = int(np.searchsorted(self.contexts, key))
        return at if at < len(self.contexts) and self.contexts[at] == key else None

    def mix_into(self, probs: NDArray[np.floating], context: int) -> None:
        """Interpolate, in place, what followed a context with `probs` `[vocabulary]`, its back-off."""
        span = slice(self.starts[context], self.starts[context + 1])
        token_ids, counts = self.token_ids[span], self.counts[span]
        weight = len(counts) + int(counts.sum())
        probs *= len(counts) / weight
        probs[token_ids] += counts / weight


class NgramModel:
    """An n-gram model with Witten-Bell interpolation, from the longest context down to the uniform floor.

    p(w | h) = (count(h w) + T(h) p(w | h')) / (count(h) + T(h)), where T(h) is how many different tokens
    followed h, and h' is h without its earliest token; under the unigram lies 1 / vocabulary. So no token has
    probability zero, and the probabilities sum to one. The logits are their logarithms in float32: half the
    memory traffic of float64, and passes over the vocabulary are all that a draft token costs.
    """

    width_invariant = True
    scores_trees = True
    only_drafts = False
    rows_share_passes = False
    encoder: Encoder | None = None

    def __init__(
        self,
        levels: Sequence[Level],
        vocab_size: int,
        *,
        tokenizer: Tokenizer | None = None,
        name: str = "n-gram",
        eos_token_ids: Iterable[int] = (),
    ) -> None:
        """`levels[k]` holds the contexts of k tokens; `count` and `load` make them."""
        self.name = name
        self.vocab_size = vocab_size
        self.max_length = 1 << 30  # only the last few tokens matter
        self.eos_token_ids = frozenset(eos_token_ids)
        self.tokenizer = tokenizer
        self._levels = levels
        unigram = np.full(vocab_size, 1 / vocab_size)
        levels[0].mix_into(unigram, 0)
        self._unigram = unigram.astype(np.float32)

    @classmethod
    def count(
        cls,
        sequences: Iterable[Sequence[int]],
        vocab_size: int,
        order: int = 2,
        *,
        tokenizer: Tokenizer | None = None,
        name: str | None = None,
        eos_token_ids: Iterable[int] = (),
    ) -> Self:
        """Count token ids; no n-gram reaches from one sequence into the next.

        `order` is n: 1 is a unigram model, 2 a bigram model. Raises OptionError for an order below 1, and
        ModelError where there is nothing to count or a token id is outside the vocabulary.
        """
        whole_number("the order of an n-gram model", order, least=1)
        texts = [np.asarray(sequence, np.int64) for sequence in sequences]
        token_ids = np.concatenate([np.empty(0, np.int64), *texts])
        if not len(token_ids):
            raise ModelError("there is nothing to count for the n-gram model; give at least one token.")
        outside = token_ids[(token_ids < 0) | (token_ids >= vocab_size)]
        if len(outside):
            raise ModelError(
                f"token id {outside[0]} is outside the n-gram model's vocabulary of {vocab_size}; "
                "give the vocabulary size of the tokenizer that made it."
            )
        offsets = np.concatenate([np.arange(len(text)) for text in texts])
        return cls(
            _count_levels(token_ids, offsets, vocab_size, order),
            vocab_size,
            tokenizer=tokenizer,
            name=name or f"{order}-gram",
            eos_token_ids=eos_token_ids,
        )

    @classmethod
    def from_text_files(
        cls,
        paths: Iterable[Path | str],
        tokenizer: Tokenizer,
        order: int = 2,
        vocab_size: int | None = None,
        *,
        name: str | None = None,
    ) -> Self:
        """Count UTF-8 text files, each one a sequence; `vocab_size` None takes the tokenizer's.

        Raises ModelError for a file that cannot be read or is not UTF-8, and what `count` raises.
        """
        return cls.count(
            (tokenizer.encode(_read_text(Path(path))) for path in paths),
            vocab_size or tokenizer.vocab_size,
            order,
            tokenizer=tokenizer,
            name=name,
            eos_token_ids=tokenizer.eos_token_ids,
        )

    @property
    def order(self) -> int:
        """n: a token depends on the n - 1 before it."""
        return len(self._levels)

    @property
    def context_length(self) -> int:
        return self.order - 1

    def most_frequent(self, count: int) -> list[int]:
        """That many tokens, or all there are, those that came most often, and of others the first ones."""
        return likeliest(self._unigram, count)

    def logits_after(self, context: Sequence[int]) -> Logits:
        """Log probabilities `[vocabulary]` of the token after `context`."""
        probs = self._unigram.copy()
        for level, number in self._seen(context):
            level.mix_into(probs, number)
        logits: Logits = np.log(probs, out=probs)
        return logits

    def _seen(self, context: Sequence[int]) -> Iterator[tuple[Level, int]]:
        """The last token, the last two, and so on, as far as they were counted: level and number of each."""
        number = 0
        for level, token_id in zip(self._levels[1:], reversed(context), strict=False):
            found = level.find(number * self.vocab_size + token_id)
            if found is None:  # nor was any longer one
                return
            number = found
            yield level, number

    def open(
        self, num_sequences: int, max_length: int, *, width_invariant: bool = True, taps: Sequence[Tap] = ()
    ) -> ContextState:
        """Open a state; raises UnsupportedError for taps, as there are no hidden states."""
        refuse_taps(taps, self.name)
        return ContextState(self, num_sequences, max_length)

    def drafter(self) -> DraftModel:
        """This model as a drafter, with the γ of 3 that the paper gives the bigram."""
        return DraftModel(self, num_draft_tokens=3)

    def save(self, path: Path | str) -> None:
        """Write one .npz file: the counts, and the fingerprint of the tokenizer if the model has one."""
        arrays = {
            f"{field}_{length}": getattr(level, field)
            for length, level in enumerate(self._levels)
            for field in _FIELDS
        }
        try:
            with Path(path).open("wb") as file:
                np.savez_compressed(
                    file,
                    format=np.array(_FORMAT),
                    name=np.array(self.name),
                    tokenizer=np.array(self.tokenizer.fingerprint if self.tokenizer else ""),
                    vocab_size=np.array(self.vocab_size),
                    order=np.array(self.order),
                    eos_token_ids=np.array(sorted(self.eos_token_ids), np.int64),
                    **arrays,
                )
        except OSError as error:
            raise ModelError(f"{path} cannot be written ({error.strerror}); give another path.") from None

    @classmethod
    def load(cls, path: Path | str, tokenizer: Tokenizer | None = None) -> Self:
        """Read what `save` wrote; `tokenizer` is the one that the model is to be used with, the target's.

        Raises ModelError where the file is not such a model or not a whole one, TokenizerMismatchError where
        another tokenizer made its tokens, and OptionError where a tokenizer did and none is given.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                if file["format"] != _FORMAT:
                    raise ValueError("it has another format")
                fingerprint = str(file["tokenizer"])
                model = cls(
                    [
                        Level(*(file[f"{field}_{length}"] for field in _FIELDS))
                        for length in range(int(file["order"]))
                    ],
                    int(file["vocab_size"]),
                    tokenizer=tokenizer,
                    name=str(file["name"]),
                    eos_token_ids=file["eos_token_ids"].tolist(),
                )
        except FileNotFoundError:
            raise ModelError(f"{path} does not exist; give an n-gram model that was saved.") from None
        except Exception as error:  # what numpy raises depends on where the file stops making sense to it
            raise ModelError(f"{path} is not a whole n-gram model ({error}); make it again.") from None
        if fingerprint and tokenizer is None:
            raise OptionError(
                f"{path} was counted with a tokenizer; load it with the target's to compare them."
            )
        if fingerprint and tokenizer and fingerprint != tokenizer.fingerprint:
            raise TokenizerMismatchError(
                f"{path} was counted with another tokenizer than that of {tokenizer.name}; "
                f"count the n-gram model again with the tokenizer of {tokenizer.name}."
            )
        return model


def _count_levels(
    token_ids: NDArray[np.int64], offsets: NDArray[np.int64], vocab_size: int, order: int
) -> list[Level]:
    """Count texts put end to end; `offsets` `[tokens]`: how far each token is from the start of its text."""
    levels = []
    at = np.arange(len(token_ids))  # the tokens that have a context of k tokens,
    context = np.zeros_like(at)  # and its number
    contexts = np.zeros(1, np.int64)
    for k in range(order):
        if k:
            inside = offsets[at] >= k
            at, context = at[inside], context[inside]
            contexts, context = np.unique(context * vocab_size + token_ids[at - k], return_inverse=True)
        ngrams, counts = np.unique(context * vocab_size + token_ids[at], return_counts=True)
        starts = np.searchsorted(ngrams, np.arange(len(contexts) + 1) * vocab_size)
        levels.append(
            Level(contexts, starts, (ngrams % vocab_size).astype(np.int32), counts.astype(np.int32))
        )
    return levels


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}); give a text file that exists.") from None
    except UnicodeDecodeError as error:
        raise ModelError(
            f"{path} is not UTF-8 text (byte {error.start} is {error.object[error.start]:#04x}); "
            "convert it to UTF-8 or leave it out."
        ) from None
