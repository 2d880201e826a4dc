"""Output that matches a grammar (llguidance): a JSON schema, a regular expression, or rules."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
from llguidance import LLMatcher, LLTokenizer

from draftwise.checks import of_kind
from draftwise.errors import OptionError
from draftwise.models.base import LanguageModel
from draftwise.tokenizer import Tokenizer
from draftwise.types import Logits, TokenIds

_MASKS_KEPT = 64  # the drafter asks for those of a draft before the target does


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an output has to match from its first token to its end.

    It ends with eos, which the grammar allows where it matches, and demands where it can go no further. An
    output that `max_new_tokens` cuts is the beginning of a match.
    """

    definition: str  # as llguidance takes it

    def __post_init__(self) -> None:
        if error := LLMatcher.validate_grammar(self.definition):
            raise OptionError(f"the grammar is not one that can be followed ({' '.join(error.split())}).")

    @classmethod
    def json_schema(cls, schema: str | Mapping[str, Any]) -> Self:
        """JSON by a schema, which is JSON text or an object; raises OptionError for one it cannot follow."""
        of_kind("the JSON schema", schema, str | Mapping, "JSON text or an object")
        try:
            parsed = json.loads(schema) if isinstance(schema, str) else dict(schema)
        except ValueError as error:
            raise OptionError(f"the JSON schema is not JSON ({error}); give one object.") from None
        if not isinstance(parsed, dict):
            raise OptionError("the JSON schema is not an object; give one, {} for any JSON.")
        return cls(LLMatcher.grammar_from_json_schema(parsed))

    @classmethod
    def regex(cls, pattern: str) -> Self:
        """Text that a regular expression matches as a whole, in Rust's syntax; raises OptionError."""
        of_kind("the regular expression", pattern, str, "text")
        return cls(LLMatcher.grammar_from_regex(pattern))

    @classmethod
    def lark(cls, rules: str) -> Self:
        """Text by rules in the notation of Lark, from `start` on; raises OptionError."""
        of_kind("the grammar", rules, str, "text")
        return cls(LLMatcher.grammar_from_lark(rules))

    def control(
        self, num_prompt_tokens: int, target: LanguageModel, eos_token_ids: Collection[int]
    ) -> "GrammarControl":
        """As a control of one sequence; raises OptionError for a target without text or eos."""
        if target.tokenizer is None:
            raise OptionError(
                f"{target.name} has no tokenizer, so that no grammar can be followed; leave it out."
            )
        if not eos_token_ids:
            raise OptionError(
                f"a grammar ends the output with eos, which {target.name} lacks or ignore_eos ignores; leave "
                "one of the two out."
            )
        tokenizer = _for_llguidance(target.tokenizer, target.vocab_size, tuple(sorted(eos_token_ids)))
        matcher = LLMatcher(tokenizer, self.definition, log_level=0)
        _refuse_failed(matcher)
        return GrammarControl(matcher, tokenizer, num_prompt_tokens)


class GrammarControl:
    """Bans each token with which the output would not be the beginning of a match; after its end all but eos.

    One matcher goes back to what the texts of two calls share, and on from there: a function of the text.
    """

    def __init__(self, matcher: LLMatcher, tokenizer: LLTokenizer, num_prompt_tokens: int) -> None:
        self._matcher = matcher
        self._eos_token_ids = tokenizer.eos_tokens
        self._num_bytes = -(-tokenizer.vocab_size // 8)
        self._num_prompt_tokens = num_prompt_tokens
        self._read: TokenIds = np.empty(0, np.int64)  # the output that the matcher has consumed
        self._mask = lru_cache(_MASKS_KEPT)(self._compute_mask)

    def __call__(self, tokens: TokenIds, logits: Logits) -> Logits:
        mask = self._mask(tokens[self._num_prompt_tokens :].tobytes())
        allowed = np.unpackbits(np.frombuffer(mask, np.uint8), count=len(logits), bitorder="little")
        logits[allowed == 0] = -np.inf
        return logits

    def allows(self, tokens: TokenIds, following: Sequence[int]) -> bool:
        """Whether all of these tokens may follow a text: quick, as it does not say what else may."""
        unread = self._read_up_to(tokens[self._num_prompt_tokens :])
        return not len(unread) and self._matcher.validate_tokens(list(following)) == len(following)

    def forced(self, tokens: TokenIds) -> Sequence[int]:
        """The tokens that have to follow a text, as far as the grammar leaves no choice."""
        unread = self._read_up_to(tokens[self._num_prompt_tokens :])
        return [] if len(unread) else self._matcher.compute_ff_tokens()

    def _compute_mask(self, output: bytes) -> bytes:
        """A bit for each token that may follow; none where the output itself is not the start of a match."""
        unread = self._read_up_to(np.frombuffer(output, np.int64))
        if len(unread) and not (self._matcher.is_stopped() and np.isin(unread, self._eos_token_ids).all()):
            return bytes(self._num_bytes)
        mask: bytes = self._matcher.compute_bitmask()
        _refuse_failed(self._matcher)
        return mask

    def _read_up_to(self, output: TokenIds) -> TokenIds:
        """Bring the matcher to an output; return what of it the matcher did not consume."""
        shared = min(len(self._read), len(output))
        parted = np.flatnonzero(self._read[:shared] != output[:shared])
        shared = int(parted[0]) if len(parted) else shared
        self._matcher.rollback(len(self._read) - shared)
        consumed = self._matcher.try_consume_tokens(output[shared:].tolist())
        self._read = output[: shared + consumed]
        return output[shared + consumed :]


@lru_cache(4)  # which takes a second for a large vocabulary
def _for_llguidance(tokenizer: Tokenizer, vocab_size: int, eos_token_ids: tuple[int, ...]) -> LLTokenizer:
    """The tokenizer as llguidance reads it, as wide as the logits or wider; raises OptionError."""
    try:
        width = max(vocab_size, tokenizer.vocab_size)
        return LLTokenizer(tokenizer.definition, n_vocab=width, eos_token=list(eos_token_ids))
    except ValueError as error:
        raise OptionError(
            f"{tokenizer.name} has a tokenizer that grammars cannot be followed with ({error}); take another "
            "model, or leave the grammar out."
        ) from None


def _refuse_failed(matcher: LLMatcher) -> None:
    if matcher.is_error():
        raise OptionError(
            f"the grammar cannot be followed ({matcher.get_error().splitlines()[0]}); make it simpler."
        )
