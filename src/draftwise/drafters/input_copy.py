"""Copy the input where the output resembles it: edits, corrections, refactorings."""

from collections.abc import Iterable, Sequence
from itertools import takewhile

from draftwise.checks import token_ids
from draftwise.control.base import Limit
from draftwise.drafters.draft_lengths import DRAFT_LENGTHS, DraftLengths, match_confidence
from draftwise.models.base import LanguageModel, Tap
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler
from draftwise.types import Draft, Source, Step

_LONGEST = 3  # tokens of an n-gram by which the place in the input is found again


class InputCopy:
    """Shallow aggressive decoding (2106.04970): the rest of the input is the draft, deterministic.

    After an insertion, a deletion or a change the output finds its place in the input again by its last one,
    two or three tokens: by the first of these that the input holds once, else by the longest that it holds,
    where that comes next. `source`: the token ids of the input, which the output is taken to begin with; None
    takes what the target's encoder reads or, where it has none, the prompt, which the output then has to join
    first. `draft_lengths`: as `DraftLengths` takes them, by the tokens copied since.
    Raises OptionError for a source that is no token ids, and as `DraftLengths` does.
    """

    def __init__(
        self,
        source: Sequence[int] | None = None,
        *,
        draft_lengths: Sequence[tuple[int, int]] = DRAFT_LENGTHS,
        name: str = "copy",
    ) -> None:
        self.name = name
        self.source = None if source is None else token_ids("source", source)
        self.draft_lengths = DraftLengths(draft_lengths)
        self.default_num_draft_tokens = self.draft_lengths.default

    def open(self, target: LanguageModel, num_sequences: int, max_length: int) -> "InputCopyState":
        return InputCopyState(self, target.vocab_size, num_sequences)


class InputCopyState:
    """A place in the input for each row. The first context of a row is its prompt."""

    taps: Sequence[Tap] = ()

    def __init__(self, drafter: InputCopy, vocab_size: int, num_sequences: int) -> None:
        self._drafter = drafter
        self._vocab_size = vocab_size
        self._alignments: list[Alignment | None] = [None] * num_sequences
        self._sources: list[tuple[int, ...] | None] = [None] * num_sequences

    def begin(self, row: int, source: Source | None) -> None:
        """The source is the input, if it is text and no other was given."""
        self._alignments[row] = None
        self._sources[row] = source if isinstance(source, tuple) else None

    def confidence(self, row: int, context: Sequence[int]) -> float:
        alignment = self._read(row, context)
        return match_confidence(alignment.num_copied) if self._ahead(alignment) else 0.0

    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[Limit],
        samplers: Sequence[Sampler],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        drafts = []
        for row, (context, limit) in enumerate(zip(contexts, limits, strict=True)):
            alignment = self._read(row, context)
            drafts.append(self._draft(alignment, limit) if limit.allows(0) else Draft())
        return drafts

    def _draft(self, alignment: "Alignment", limit: Limit) -> Draft:
        ahead = enumerate(self._ahead(alignment))
        allowed = takewhile(
            lambda at: limit.allows(at[0], match_confidence(alignment.num_copied + at[0])), ahead
        )
        return Draft(tuple(token_id for _, token_id in allowed))

    def _ahead(self, alignment: "Alignment") -> Sequence[int]:
        following = alignment.following(self._drafter.draft_lengths.after(alignment.num_copied))
        return tuple(takewhile(lambda token_id: token_id < self._vocab_size, following))

    def _read(self, row: int, context: Sequence[int]) -> "Alignment":
        alignment = self._alignments[row]
        if alignment is None:
            source = self._sources[row] if self._drafter.source is None else self._drafter.source
            alignment = Alignment(context if source is None else source, joined=source is not None)
            alignment.num_read = len(context)
            self._alignments[row] = alignment
        alignment.read(context[alignment.num_read :])
        return alignment

    def observe(self, step: Step) -> None:
        """Nothing to learn: the text itself says what was emitted."""

    def close(self) -> None:
        self._alignments.clear()


class Alignment:
    """Where in an input the output stands."""

    def __init__(self, source: Iterable[int], *, joined: bool) -> None:
        """`joined`: the output begins as the input does; else its place is yet to be found."""
        self.num_read = 0
        self.num_copied = int(joined)  # tokens of the output that are the input's, up to this place
        self._source = tuple(source)
        self._place: int | None = 0 if joined else None  # where the input goes on
        self._last_place = 0  # the latest place there was
        self._recent: tuple[int, ...] = ()
        self._ends: dict[tuple[int, ...], list[int]] = {}  # where each n-gram of the input ends
        for end in range(1, len(self._source) + 1):
            for start in range(max(0, end - _LONGEST), end):
                self._ends.setdefault(self._source[start:end], []).append(end)

    def following(self, num_tokens: int) -> tuple[int, ...]:
        """The next tokens of the input, none while the place is lost."""
        return () if self._place is None else self._source[self._place : self._place + num_tokens]

    def read(self, output: Sequence[int]) -> None:
        """Follow the output."""
        for token_id in output:
            self._recent = (*self._recent, token_id)[-_LONGEST:]
            if self.following(1) == (token_id,):
                self._place, self.num_copied = self._last_place + 1, self.num_copied + 1
            else:
                self._place, self.num_copied = self._find()
            self._last_place = self._last_place if self._place is None else self._place
        self.num_read += len(output)

    def _find(self) -> tuple[int | None, int]:
        """The place after the end of the output in the input, and how many tokens it was found by."""
        ends: list[int] = []
        size = 0
        for size in range(1, len(self._recent) + 1):
            longer = self._ends.get(self._recent[-size:], [])
            if not longer:
                size -= 1
                break
            ends = longer
            if len(ends) == 1:
                break
        ahead = (end for end in ends if end > self._last_place)
        return next(ahead, ends[-1] if ends else None), size
