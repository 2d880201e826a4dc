"""The protocol that the target and a draft model share: score tokens, keep a cache, go back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from draftwise.checks import of_kind
from draftwise.errors import UnsupportedError
from draftwise.tokenizer import Tokenizer
from draftwise.types import Logits, Source


@dataclass(eq=False, slots=True)
class Tap:
    """Hidden states that a drafter reads from the passes of a target.

    `layers`: their numbers in the `hidden_states` of transformers: n is what goes into layer n, counted from
    0, and -1 what the output layer reads, after the last norm. `rows`: written by each pass, for each row
    the hidden states of the tokens fed in it, one array `[tokens, width]` for each of the layers, of the
    engine's own kind and on its device. `state`: the target's state, whose cache a drafter may share; set
    when that is opened.
    """

    layers: tuple[int, ...]
    rows: Sequence[Sequence[Any]] = ()
    state: "ModelState | None" = None


def refuse_no_model(name: str, value: object) -> None:
    """Raise OptionError for anything but a model, such as its name."""
    of_kind(name, value, LanguageModel, "a model, as draftwise.load returns it")


def refuse_no_target(target: "LanguageModel") -> None:
    """Raise OptionError for anything but a model, and UnsupportedError for one that can only draft."""
    refuse_no_model("target", target)
    if target.only_drafts:
        raise UnsupportedError(
            f"{target.name} guesses some of its tokens alone and would never write the others; as a target "
            "give a model that knows all of them, converted without --corpus."
        )


def refuse_taps(taps: Sequence[Tap], name: str) -> None:
    """Raise UnsupportedError if hidden states are asked of a model that hands out none."""
    if taps:
        raise UnsupportedError(
            f"{name} hands out no hidden states, which this drafter reads; load the target with the torch "
            "engine."
        )


def refuse_no_trees(model: "LanguageModel") -> None:
    """Raise UnsupportedError for a model that cannot score trees of guesses."""
    if not model.scores_trees:
        raise UnsupportedError(
            f"{model.name} cannot score trees; load it with engine='torch', or draft chains."
        )


def refuse_encoder(model: "LanguageModel", what: str) -> None:
    """Raise UnsupportedError if a model has an encoder, which `what` gives nothing to read."""
    if model.encoder is not None:
        raise UnsupportedError(
            f"{model.name} is an encoder-decoder model, for which there is no {what}; give a decoder-only "
            "one."
        )


class Encoder(Protocol):
    """What an encoder-decoder model has before its decoder."""

    start_ids: tuple[int, ...]  # what every text of the decoder begins with

    def check(self, source: Source) -> None:
        """Raise PromptError unless the encoder can read this."""
        ...

    @property
    def example(self) -> Source:
        """Something that it can read, for measurements."""
        ...


def example_of(model: "LanguageModel") -> Source | None:
    """What an encoder reads while a model is measured; None for a model without one."""
    return model.encoder.example if model.encoder else None


class ModelState(Protocol):
    """The caches of several independent sequences (rows), each with its own length."""

    @property
    def lengths(self) -> Sequence[int]:
        """Tokens held for each row."""
        ...

    def begin(self, row: int, source: Source | None) -> None:
        """Hold a new sequence in this row, and forget the one before.

        An encoder reads `source`, here and once; a model without one has no use for it.
        """
        ...

    def forward(
        self,
        token_ids: Sequence[Sequence[int]],
        num_logits: Sequence[int],
        parents: Sequence[Sequence[int] | None] | None = None,
    ) -> list[Logits]:
        """Append tokens to each row and return, row by row, the logits of the last `num_logits` of them.

        `token_ids`: one list for each row; an empty list leaves its row alone. Returns `[num_logits[row],
        vocabulary]` arrays that stay valid until the next call. `parents`: for a row whose new tokens form a
        tree, the index (among the row's new tokens) of each token's parent, -1 for a child of the last token
        held; a parent precedes its children, and a token sees the held tokens and its ancestors. None is a
        chain. Raises UnsupportedError where the engine cannot score trees.
        """
        ...

    def copy(self, row: int, to: int) -> None:
        """Hold in the row `to` what `row` holds: its tokens, its source, and what the taps heard of it."""
        ...

    def keep(self, row: int, length: int) -> None:
        """Hold the first `length` tokens of the row and forget the rest (absolute, idempotent)."""
        ...

    def keep_path(self, row: int, length: int, path: Sequence[int]) -> None:
        """Hold the first `length` tokens of the row and, after them, those at slots `path` (increasing)."""
        ...

    def close(self) -> None:
        """Release the buffers; idempotent."""
        ...


@runtime_checkable
class LanguageModel(Protocol):
    """A causal language model over token ids, maybe with an encoder; it serves any number of open states."""

    name: str
    vocab_size: int  # width of the logits; a padded vocabulary counts its padding
    max_length: int  # the most tokens that one row can hold
    eos_token_ids: frozenset[int]
    width_invariant: bool  # whether a position's logits have the same bits in passes of any width, here
    scores_trees: bool  # whether `forward` takes `parents`
    only_drafts: bool  # whether it lacks tokens that it should write, which only a draft model may
    rows_share_passes: bool  # whether rows go through it in one pass, as wide as the widest, not one by one
    tokenizer: Tokenizer | None

    @property
    def encoder(self) -> Encoder | None:
        """None: the model reads nothing but the text that it goes on with."""
        ...

    def open(
        self, num_sequences: int, max_length: int, *, width_invariant: bool = True, taps: Sequence[Tap] = ()
    ) -> ModelState:
        """Allocate caches of `max_length` tokens for `num_sequences` rows.

        `width_invariant`: where the engine can, a position's logits have the same bits in a pass of any
        width, which a target wants; a draft model gives that up for speed.
        """
        ...
