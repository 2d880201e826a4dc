"""A draft model writes text, which is guessed in the target's tokens: string-level exact match (SLEM)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from draftwise.control.base import Limit, UpTo
from draftwise.drafters.draft_model import DraftModel, DraftModelState
from draftwise.drafters.translation.pieces import Translation
from draftwise.models.base import LanguageModel, Tap, refuse_no_model
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler, SamplingParams
from draftwise.types import Draft, Source, Step

# No tokenizer of note has a token over such a line, so what comes after it does not change those before.
_WORDS = re.compile(rb"(?<=\S)(?= )|(?<=\n)(?=\S)")


class TextDraftModel:
    """Any language model with a tokenizer, drafting for a target with any other (2502.05202, Algorithm 2).

    It reads the text so far in its own tokens and goes on greedily; that text, in the target's tokens, is the
    draft, a deterministic guess at any temperature. `num_draft_tokens`: how many tokens of the target's it
    drafts where the caller does not say. Raises OptionError below 1.
    """

    def __init__(self, model: LanguageModel, name: str | None = None, num_draft_tokens: int = 4) -> None:
        refuse_no_model("model", model)
        self.model = model
        self.name = name or f"{model.name} (SLEM)"
        self._drafter = DraftModel(model, self.name, num_draft_tokens)
        self.default_num_draft_tokens = num_draft_tokens
        self._translated: tuple[LanguageModel, Translation] | None = None  # the last target's

    def open(self, target: LanguageModel, num_sequences: int, max_length: int) -> "TextDraftState":
        """Start drafting; raises TokenizerMismatchError where the target or the model has no tokenizer."""
        if self._translated is None or self._translated[0] is not target:
            self._translated = target, Translation.between(target, self.model)
        translation = self._translated[1]
        drafting = self._drafter.open(self.model, num_sequences, translation.capacity(max_length))
        return TextDraftState(translation, drafting, num_sequences, self.model.eos_token_ids)


@dataclass(slots=True)
class _Text:
    """The text of a row, and the draft model's tokens for it: none of them depends on how it was read."""

    token_ids: list[int]  # of whole words
    num_read: int = 0  # tokens of the target's
    last: bytes = b""  # the last whole word
    word: bytes = b""  # the one that goes on

    def read(self, context: Sequence[int], translation: Translation) -> list[int]:
        """Read what is new of a context of the target's tokens; return all in the draft model's tokens."""
        *whole, self.word = _WORDS.split(self.word + translation.target.text(context[self.num_read :]))
        self.num_read = len(context)
        for word in whole:
            self.token_ids += translation.draft.encode(self.last, word)
            self.last = word
        # Where nothing can be spelled, some token is read, for the logits after it.
        return [*self.token_ids, *translation.draft.encode(self.last, self.word)] or [0]


@dataclass(slots=True)
class _Guess:
    """What is drafted for a row: it grows by one token of the draft model's at a time."""

    context: list[int]  # in the draft model's tokens, with those drafted
    limit: Limit
    patience: float  # tokens of the draft model's that one of the target's may take
    num_written: int = 0
    text: bytes = b""
    token_ids: list[int] = field(default_factory=list)  # the text in the target's tokens
    num_allowed: int = 0  # of those
    confidence: float = 1.0  # in what was written since the last one was allowed

    def goes_on(self) -> bool:
        """Whether to write on: it takes the text to say what a token of the target's is."""
        num_guessed = len(self.token_ids)
        if num_guessed > self.num_allowed or self.num_written >= self.patience * (num_guessed + 1):
            return False
        return num_guessed < self.num_allowed or self.limit.allows(self.num_allowed)

    def rewrite(self, token_ids: list[int]) -> None:
        """Take the text's tokens, which are more than before or others; ask whether all may be guessed."""
        self.token_ids = token_ids
        while self.num_allowed < len(token_ids) and self.limit.allows(self.num_allowed, self.confidence):
            self.num_allowed += 1
            self.confidence = 1.0


@dataclass(slots=True)
class _One(Limit):
    """Allows one token, and remembers how sure of it the drafter was."""

    confidence: float = 1.0

    def choose(self, confidences: Sequence[float | None]) -> int | None:
        return UpTo(1).choose(confidences)

    def allows(self, num_drafted: int, confidence: float | None = None, parent: int | None = None) -> bool:
        self.confidence = self.confidence if confidence is None else confidence
        return UpTo(1).allows(num_drafted)


class TextDraftState:
    """The text of each row, and a draft model that has read it. Drafts are empty where it does not fit."""

    taps: Sequence[Tap] = ()

    def __init__(
        self,
        translation: Translation,
        drafting: DraftModelState,
        num_sequences: int,
        eos_token_ids: frozenset[int],
    ) -> None:
        self._translation = translation
        self._drafting = drafting
        self._eos_token_ids = eos_token_ids
        self._texts = [_Text(list(translation.leading_ids)) for _ in range(num_sequences)]

    def begin(self, row: int, source: Source | None) -> None:
        self._texts[row] = _Text(list(self._translation.leading_ids))
        self._drafting.begin(row, None)

    def confidence(self, row: int, context: Sequence[int]) -> float | None:
        return self._drafting.confidence(row, self._texts[row].read(context, self._translation))

    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[Limit],
        samplers: Sequence[Sampler],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        greedy = [Sampler(SamplingParams())] * len(contexts)
        guesses = [_Guess([], limit, self._translation.ratio) for limit in limits]
        active = [row for row, guess in enumerate(guesses) if guess.goes_on()]
        for row in active:
            guesses[row].context = self._texts[row].read(contexts[row], self._translation)
        while active:
            ones = [_One() for _ in guesses]
            drafts = self._drafting.propose(
                [guess.context for guess in guesses],
                [one if row in active else UpTo(0) for row, one in enumerate(ones)],
                greedy,
                randomness,
            )
            for row in active:
                self._write(row, guesses[row], drafts[row].token_ids, ones[row].confidence)
            active = [
                row
                for row in active
                if drafts[row].token_ids
                and self._eos_token_ids.isdisjoint(drafts[row].token_ids)
                and guesses[row].goes_on()
            ]
        return [Draft(tuple(guess.token_ids[: guess.num_allowed])) for guess in guesses]

    def _write(self, row: int, guess: _Guess, token_ids: Sequence[int], confidence: float) -> None:
        text = self._texts[row]
        guess.context += token_ids
        guess.num_written += len(token_ids)
        guess.text += self._translation.draft.text(token_ids)
        guess.confidence *= confidence
        guess.rewrite(self._translation.target.encode(text.last + text.word, guess.text))

    def observe(self, step: Step) -> None:
        """Nothing to learn: the contexts say what was accepted."""

    def close(self) -> None:
        self._drafting.close()
