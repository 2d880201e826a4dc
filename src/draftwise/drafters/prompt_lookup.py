"""Guess that the text repeats itself: copy what followed the longest end of it that occurred before."""

from collections.abc import Sequence
from itertools import cycle, islice, takewhile

from draftwise.control.base import Limit
from draftwise.drafters.draft_lengths import DRAFT_LENGTHS, DraftLengths, match_confidence
from draftwise.drafters.suffix_automaton import SuffixAutomaton
from draftwise.models.base import LanguageModel, Tap
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler
from draftwise.types import Draft, Source, Step


class PromptLookup:
    """Copies from prompt, output and the text that an encoder read; needs no model, and its drafts are
    deterministic (`probs` None).

    `draft_lengths`: as `DraftLengths` takes them, with the OptionError it raises.
    """

    def __init__(
        self, draft_lengths: Sequence[tuple[int, int]] = DRAFT_LENGTHS, name: str = "prompt-lookup"
    ) -> None:
        self.name = name
        self.draft_lengths = DraftLengths(draft_lengths)
        self.default_num_draft_tokens = self.draft_lengths.default

    def open(self, target: LanguageModel, num_sequences: int, max_length: int) -> "PromptLookupState":
        return PromptLookupState(self.draft_lengths, num_sequences)


class PromptLookupState:
    """An index of each row's text, which reads the tokens it has not seen when a draft is asked for."""

    taps: Sequence[Tap] = ()

    def __init__(self, draft_lengths: DraftLengths, num_sequences: int) -> None:
        self._draft_lengths = draft_lengths
        self._indexes = [SuffixAutomaton() for _ in range(num_sequences)]
        self._sources: list[tuple[int, ...]] = [()] * num_sequences  # what stands before the contexts

    def begin(self, row: int, source: Source | None) -> None:
        self._sources[row] = source if isinstance(source, tuple) else ()
        self._indexes[row] = SuffixAutomaton()
        for token_id in self._sources[row]:
            self._indexes[row].append(token_id)

    def confidence(self, row: int, context: Sequence[int]) -> float:
        index = self._read(row, context)
        return match_confidence(index.match_length) if self._draft_lengths.after(index.match_length) else 0.0

    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[Limit],
        samplers: Sequence[Sampler],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        return [
            self._guess(row, context, limit) if limit.allows(0) else Draft()
            for row, (context, limit) in enumerate(zip(contexts, limits, strict=True))
        ]

    def _read(self, row: int, context: Sequence[int]) -> SuffixAutomaton:
        index = self._indexes[row]
        for token_id in context[len(index) - len(self._sources[row]) :]:
            index.append(token_id)
        return index

    def _guess(self, row: int, context: Sequence[int], limit: Limit) -> Draft:
        index = self._read(row, context)
        most = self._draft_lengths.after(index.match_length)
        allowed = takewhile(lambda i: limit.allows(i, match_confidence(index.match_length + i)), range(most))
        length = sum(1 for _ in allowed)
        copied = self._text(row, context, index.match_end, index.match_end + length)
        # A copy that reaches the end of the text goes on with what it has just written: the text is periodic.
        return Draft(tuple(islice(cycle(copied), length)))

    def _text(self, row: int, context: Sequence[int], start: int, end: int) -> list[int]:
        """A part of the row's text: the source and then the context."""
        source = self._sources[row]
        return [
            *source[start:end],
            *context[max(0, start - len(source)) : max(0, end - len(source))],
        ]

    def observe(self, step: Step) -> None:
        """Nothing to learn: the text itself says what was emitted."""

    def close(self) -> None:
        self._indexes.clear()
