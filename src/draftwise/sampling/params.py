"""How the next token is drawn, as the caller says it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from draftwise.checks import number, whole_number
from draftwise.errors import OptionError
from draftwise.types import Control


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is drawn; the default is greedy. Raises OptionError for a value out of range.

    The filters apply in the order temperature, top-k, top-p, min-p, each to what the one before it left. Each
    is a cutoff, so a token that is exactly as likely as the last one kept is kept too.
    """

    temperature: float = 0.0  # 0 takes the most likely token
    top_k: int | None = None  # keep the k most likely tokens
    top_p: float = 1.0  # keep the fewest most likely tokens whose probabilities sum to at least top_p
    min_p: float = 0.0  # keep the tokens at least min_p times as likely as the most likely one
    # What else changes the logits: called with all tokens so far, drafted ones included, `[tokens]` int64,
    # and the logits `[vocabulary]` after them, which it may change and must return.
    processors: Sequence[Control] = ()

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p", "min_p"):
            number(name, getattr(self, name))
        if not 0 <= self.temperature < inf:
            raise OptionError(
                f"temperature is {self.temperature}; give 0 (greedy) or a positive finite number."
            )
        if self.top_k is not None and whole_number("top_k", self.top_k) < 1:
            raise OptionError(f"top_k is {self.top_k}; give 1 or more, or leave it out to keep every token.")
        if not 0 < self.top_p <= 1:
            raise OptionError(
                f"top_p is {self.top_p}; give a number above 0 and up to 1, where 1 keeps every token."
            )
        if not 0 <= self.min_p <= 1:
            raise OptionError(f"min_p is {self.min_p}; give a number from 0 to 1, where 0 keeps every token.")
