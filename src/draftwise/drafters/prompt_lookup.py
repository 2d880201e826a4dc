"""Guess that the text repeats itself: copy what followed the longest end of it that occurred before."""

from bisect import bisect
from collections.abc import Sequence
from itertools import cycle, islice, takewhile

from draftwise.control.base import Limit
from draftwise.drafters.suffix_automaton import SuffixAutomaton
from draftwise.errors import OptionError
from draftwise.models.base import LanguageModel, Tap
from draftwise.randomness import Randomness
from draftwise.sampling import SamplingParams
from draftwise.types import Draft, Step

# (tokens matched, tokens drafted): the longer the match, the likelier the copy goes on.
DRAFT_LENGTHS = ((1, 1), (2, 3), (4, 5), (6, 7), (10, 11))


class PromptLookup:
    """Copies from prompt and output; needs no model, and its drafts are deterministic (`probs` None).

    `draft_lengths`: pairs (match length from which the pair holds, tokens drafted), in increasing order of
    match length; a match shorter than the first draws no draft. Raises OptionError for pairs that are not so.
    """

    def __init__(
        self, draft_lengths: Sequence[tuple[int, int]] = DRAFT_LENGTHS, name: str = "prompt-lookup"
    ) -> None:
        matches = [matched for matched, _ in draft_lengths]
        lengths = [drafted for _, drafted in draft_lengths]
        if not matches or matches[0] < 1 or min(lengths) < 1 or sorted(set(matches)) != matches:
            raise OptionError(
                f"draft_lengths is {draft_lengths}; give pairs (match length, draft length) of whole numbers "
                "from 1 up, by increasing match length."
            )
        self.name = name
        self.default_num_draft_tokens = max(lengths)
        self._matches = matches
        self._lengths = [0, *lengths]

    def open(self, target: LanguageModel, num_sequences: int, max_length: int) -> "PromptLookupState":
        return PromptLookupState(self, num_sequences)

    def draft_length(self, match_length: int) -> int:
        """How many tokens to draft after a match of `match_length` tokens."""
        return self._lengths[bisect(self._matches, match_length)]


class PromptLookupState:
    """An index of each row's text, which reads the tokens it has not seen when a draft is asked for."""

    taps: Sequence[Tap] = ()

    def __init__(self, drafter: PromptLookup, num_sequences: int) -> None:
        self._drafter = drafter
        self._indexes = [SuffixAutomaton() for _ in range(num_sequences)]

    def confidence(self, row: int, context: Sequence[int]) -> float:
        index = self._read(row, context)
        return _confidence(index.match_length) if self._drafter.draft_length(index.match_length) else 0.0

    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[Limit],
        sampling: Sequence[SamplingParams],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        return [
            self._guess(row, context, limit) if limit.allows(0) else Draft()
            for row, (context, limit) in enumerate(zip(contexts, limits, strict=True))
        ]

    def _read(self, row: int, context: Sequence[int]) -> SuffixAutomaton:
        index = self._indexes[row]
        for token_id in context[len(index) :]:
            index.append(token_id)
        return index

    def _guess(self, row: int, context: Sequence[int], limit: Limit) -> Draft:
        index = self._read(row, context)
        most = self._drafter.draft_length(index.match_length)
        allowed = takewhile(lambda i: limit.allows(i, _confidence(index.match_length + i)), range(most))
        length = sum(1 for _ in allowed)
        copied = context[index.match_end : index.match_end + length]
        # A copy that reaches the end of the text goes on with what it has just written: the text is periodic.
        return Draft(tuple(islice(cycle(copied), length)))

    def observe(self, step: Step) -> None:
        """Nothing to learn: the text itself says what was emitted."""

    def close(self) -> None:
        self._indexes.clear()


def _confidence(match_length: int) -> float:
    """One to `match_length` are the odds that the copy goes on: the longer the match, the likelier."""
    return match_length / (match_length + 1)
