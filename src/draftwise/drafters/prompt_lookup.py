"""Guess that the text repeats itself: copy what followed the longest end of it that occurred before."""

from collections.abc import Iterator, Sequence
from itertools import count, islice, takewhile

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
        if not self._draft_lengths.after(index.match_length):
            return 0.0
        return next(self._copy(row, context))[1]

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
        copy = islice(self._copy(row, context), self._draft_lengths.after(index.match_length))
        allowed = takewhile(lambda at: limit.allows(at[0], at[1][1]), enumerate(copy))
        return Draft(tuple(token_id for _, (token_id, _) in allowed))

    def _copy(self, row: int, context: Sequence[int]) -> Iterator[tuple[int, float]]:
        """What followed the match, each token and how likely it is right if those before it are."""
        index, source = self._indexes[row], self._sources[row]
        place, at = index.match, index.match_end
        # A copy that reaches the end of the text goes on with what it has just written: the text is periodic.
        period = len(index) - at
        for number in count():
            position = at + number % period - len(source)
            token_id = context[position] if position >= 0 else source[position]
            yield token_id, match_confidence(place[1], *index.went_on(place, token_id))
            place = index.follow(place, token_id)

    def observe(self, step: Step) -> None:
        """Nothing to learn: the text itself says what was emitted."""

    def close(self) -> None:
        self._indexes.clear()
