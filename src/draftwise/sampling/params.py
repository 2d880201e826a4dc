"""How the next token is drawn, as the caller says it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from draftwise.checks import number, of_kind, whole_number
from draftwise.errors import OptionError
from draftwise.types import Control

if TYPE_CHECKING:
    from draftwise.sampling.grammar import Grammar

# Of what is added to logits, and divides them: beyond it logits no longer tell tokens apart, or overflow.
_LARGEST = 1e9


def _is_moderate(value: float) -> bool:
    return -_LARGEST <= value <= _LARGEST


_MODERATE = f"a number from {-_LARGEST:g} to {_LARGEST:g}"
_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "temperature": (lambda value: 0 <= value < inf, "0 (greedy) or a positive finite number"),
    "top_p": (lambda value: 0 < value <= 1, "a number above 0 and up to 1, where 1 keeps every token"),
    "min_p": (lambda value: 0 <= value <= 1, "a number from 0 to 1, where 0 keeps every token"),
    "typical_p": (lambda value: 0 < value <= 1, "a number above 0 and up to 1, where 1 keeps every token"),
    "repetition_penalty": (
        lambda value: 1 / _LARGEST <= value <= _LARGEST,
        f"a number from {1 / _LARGEST:g} to {_LARGEST:g}, where 1 changes nothing",
    ),
    "presence_penalty": (_is_moderate, f"{_MODERATE}, where 0 changes nothing"),
    "frequency_penalty": (_is_moderate, f"{_MODERATE}, where 0 changes nothing"),
}


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is drawn; the default is greedy. Raises OptionError for a value out of range.

    At each position, of a draft too, given all the tokens before it, and in this order, which is that of
    transformers for those it has:

    1. what changes logits: `logit_bias`, `repetition_penalty`, `presence_penalty` and `frequency_penalty`,
       `banned`, `min_new_tokens`, `processors`, `grammar`;
    2. `temperature`;
    3. what is left out of the distribution: `top_k`, `top_p`, `min_p`, `typical_p`, each from what the one
       before it left. Each is a cutoff: a token that is exactly at it is kept. Greedily they change nothing.
    """

    temperature: float = 0.0  # 0 takes the most likely token
    top_k: int | None = None  # keep the k most likely tokens
    top_p: float = 1.0  # keep the fewest most likely tokens whose probabilities sum to at least top_p
    min_p: float = 0.0  # keep the tokens at least min_p times as likely as the most likely one
    # Keep the fewest tokens that sum to at least typical_p, those first whose information -log p is nearest
    # to the entropy (locally typical sampling, 2202.00666).
    typical_p: float = 1.0
    # Divides the logits above 0 of tokens that prompt or output hold, and multiplies those below (CTRL,
    # 1909.05858, section 4.1).
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0  # taken from the logits of tokens in the output (the prompt not counted),
    frequency_penalty: float = 0.0  # and taken once for each time that they are there
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)  # added, by token id
    # Never emitted: token ids, sequences of them, or text, as the tokenizer spells it at the beginning of a
    # text and after a space.
    banned: Sequence[int | Sequence[int] | str] = ()
    min_new_tokens: int = 0  # before these the output does not end with eos or a stop token
    # Anything else: functions that are called with all tokens so far `[tokens]` (int64) and the logits
    # `[vocabulary]` after them, which they may change and must return; and transformers' LogitsProcessor
    # objects. What they do must depend on the two alone: positions come in any order, some never, some twice.
    processors: Sequence[Control | Any] = ()
    grammar: "Grammar | None" = None  # what the output has to match

    def __post_init__(self) -> None:
        for name, (fits, wanted) in _RANGES.items():
            if not fits(number(name, getattr(self, name))):
                raise OptionError(f"{name} is {getattr(self, name)}; give {wanted}.")
        if self.top_k is not None and whole_number("top_k", self.top_k) < 1:
            raise OptionError(f"top_k is {self.top_k}; give 1 or more, or leave it out to keep every token.")
        whole_number("min_new_tokens", self.min_new_tokens, least=0)
        if not isinstance(self.logit_bias, Mapping):
            raise OptionError(f"logit_bias is {self.logit_bias!r}; give a mapping from token ids to numbers.")
        for token_id, bias in self.logit_bias.items():
            whole_number("a token id of logit_bias", token_id)
            if not _is_moderate(number(f"logit_bias of token {token_id}", bias)):
                raise OptionError(
                    f"logit_bias of token {token_id} is {bias}; give {_MODERATE}, or banned to never emit it."
                )
        if isinstance(self.banned, str | bytes) or not isinstance(self.banned, Sequence):
            raise OptionError(f"banned is {self.banned!r}; give a list of token ids, lists of them, or text.")
        for sequence in map(as_sequence, self.banned):
            if not sequence:
                raise OptionError("banned holds something empty; leave it out, or give a token or text.")
            for token_id in sequence if not isinstance(sequence, str) else ():
                whole_number("a token id of banned", token_id)
        if not isinstance(self.processors, Sequence) or not all(map(callable, self.processors)):
            raise OptionError("processors holds something that cannot be called; give a list of functions.")
        if self.grammar is not None:
            from draftwise.sampling.grammar import Grammar  # llguidance is loaded where one is used

            of_kind("grammar", self.grammar, Grammar, "a Grammar, such as Grammar.regex(...)")


def as_sequence(banned: int | Sequence[int] | str) -> Sequence[int] | str:
    """One of `banned` as a sequence of token ids or as text."""
    return banned if isinstance(banned, Sequence) else (banned,)
