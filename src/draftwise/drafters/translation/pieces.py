"""Two vocabularies side by side: what their tokens spell, and how one spells the text of the other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from draftwise.errors import TokenizerMismatchError, UnsupportedError
from draftwise.models.base import LanguageModel
from draftwise.tokenizer import Tokenizer


class Pieces:
    """The tokens of one model as pieces of text, in bytes: a token may be a part of a character."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, spellings: Mapping[int, bytes]) -> None:
        """`spellings`: the bytes of each token; ids from `vocab_size` on are none of the model's."""
        self._tokenizer = tokenizer
        self._spellings = {token_id: text for token_id, text in spellings.items() if token_id < vocab_size}
        # Of two tokens that spell the same the later one: the first are fallbacks for single bytes.
        self.ids = {text: token_id for token_id, text in sorted(self._spellings.items()) if text}
        self._longest = max(map(len, self.ids), default=0)

    def text(self, token_ids: Sequence[int]) -> bytes:
        """What tokens spell; padding spells nothing."""
        return b"".join(self._spellings.get(token_id, b"") for token_id in token_ids)

    @property
    def mean_length(self) -> float:
        """Bytes that a token of the vocabulary has on average."""
        return sum(map(len, self.ids)) / len(self.ids)

    def tile(self, text: bytes) -> list[int]:
        """Tokens for any bytes, each the longest that fits; a byte that none begins with is left out."""
        token_ids: list[int] = []
        at = 0
        while at < len(text):
            ends = range(min(len(text), at + self._longest), at, -1)
            end = next((end for end in ends if text[at:end] in self.ids), None)
            if end is not None:
                token_ids.append(self.ids[text[at:end]])
            at = end or at + 1
        return token_ids

    def encode(self, before: bytes, text: bytes) -> list[int]:
        """The tokens that the tokenizer would have for a text that follows another.

        Where it would draw no line between the two, or a text ends amid a character, they are tiles.
        """
        try:
            whole = before.decode(errors="ignore") + text.decode()
        except UnicodeDecodeError:
            return self.tile(text)
        token_ids = self._tokenizer.encode(whole, add_special_tokens=False)
        # Tokenizers of SentencePiece's family put a space before a text.
        for wanted in (text,) if before else (b" " + text, text):
            start = self._start_of(token_ids, len(wanted))
            if self.text(token_ids[start:]) == wanted:
                return token_ids[start:]
        return self.tile(text)

    def _start_of(self, token_ids: Sequence[int], num_bytes: int) -> int:
        """Where the tokens begin that spell so many bytes at the end, or more if there is no line there."""
        start = len(token_ids)
        while num_bytes > 0 and start:
            start -= 1
            num_bytes -= len(self.text(token_ids[start : start + 1]))
        return start


@dataclass(frozen=True, slots=True)
class Translation:
    """The pieces of a target and of a draft model."""

    target: Pieces
    draft: Pieces
    leading_ids: Sequence[int]  # the special tokens that the draft model reads before every text
    ratio: float  # tokens of the draft model that one of the target may take, on average over a text

    @classmethod
    def between(cls, target: LanguageModel, model: LanguageModel) -> Self:
        """Raises TokenizerMismatchError where one of the two has no tokenizer, and UnsupportedError where the
        draft model has an encoder.
        """
        if model.encoder:
            raise UnsupportedError(
                f"{model.name} has an encoder, whose input is not translated; take a draft model without one."
            )
        for each in (target, model):
            if each.tokenizer is None:
                raise TokenizerMismatchError(
                    f"{each.name} has no tokenizer, so {model.name} cannot be translated for {target.name}; "
                    "load it from a folder that holds one, or draft without translation."
                )
        assert target.tokenizer
        assert model.tokenizer
        spelled, written = dict(target.tokenizer.spellings), dict(model.tokenizer.spellings)
        # What ends a text may have another name in each: it is spelled as the target's.
        known = set(spelled.values())
        ends = [end for end in sorted(target.eos_token_ids) if spelled.get(end) not in written.values()]
        own_ends = [end for end in sorted(model.eos_token_ids) if written.get(end) not in known]
        written |= {own: spelled[end] for own, end in zip(own_ends, ends, strict=False) if end in spelled}
        # What begins a text is no part of it.
        spelled |= dict.fromkeys(target.tokenizer.leading_ids, b"")
        theirs = Pieces(target.tokenizer, target.vocab_size, spelled)
        own = Pieces(model.tokenizer, model.vocab_size, written)
        ratio = 2 * max(1.0, theirs.mean_length / own.mean_length)
        return cls(theirs, own, model.tokenizer.leading_ids, ratio)

    def capacity(self, num_tokens: int) -> int:
        """Tokens of the draft model to make room for, for a text of so many tokens of the target."""
        return len(self.leading_ids) + round(self.ratio * num_tokens)
