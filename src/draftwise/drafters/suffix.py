"""Guess what most often followed the longest end of the text, in the text itself or in earlier outputs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import nlargest

from draftwise.checks import of_kind, whole_number
from draftwise.control.base import Limit
from draftwise.drafters.corpus import Corpus, Part
from draftwise.drafters.draft_lengths import DRAFT_LENGTHS, DraftLengths, match_confidence
from draftwise.drafters.likeliest_paths import likeliest_paths, refuse_branching
from draftwise.drafters.suffix_automaton import Place, SuffixAutomaton
from draftwise.models.base import LanguageModel, Tap
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler
from draftwise.types import Draft, Source, Step

_LONGEST_MATCH = 64  # tokens of a text that are looked for in the corpus: longer matches say no more


class Suffix:
    """Follows the most frequent continuation through suffix automata; its drafts are deterministic.

    Suffix decoding (Oliaro et al., 2411.04975) with automata for its trees. `corpus`: earlier outputs, None
    for the text alone; `learn`: whether finished outputs are added to it. `branching`: how many guesses at
    one position there may be; 1 makes chains. `draft_lengths`: as `DraftLengths` takes them, for the depth.
    Raises OptionError for a branching below 1, and as `DraftLengths` does.
    """

    def __init__(
        self,
        corpus: Corpus | None = None,
        *,
        learn: bool = True,
        branching: int = 1,
        draft_lengths: Sequence[tuple[int, int]] = DRAFT_LENGTHS,
        name: str = "suffix",
    ) -> None:
        self.name = name
        self.corpus = Corpus() if corpus is None else corpus
        of_kind("corpus", self.corpus, Corpus, "a Corpus, or None")
        self.learn = learn and corpus is not None
        self.branching = whole_number("branching", branching, least=1)
        self.draft_lengths = DraftLengths(draft_lengths)
        self.default_num_draft_tokens = self.draft_lengths.default

    def open(self, target: LanguageModel, num_sequences: int, max_length: int) -> "SuffixState":
        """Start drafting; raises UnsupportedError for a branching that the target cannot score."""
        refuse_branching(self.branching, target)
        return SuffixState(self, target.vocab_size, num_sequences)


@dataclass(slots=True)
class _Place:
    """Where the end of a row's text is in a part of the corpus."""

    at: Place = SuffixAutomaton.root
    num_read: int = 0


@dataclass(slots=True)
class _Row:
    index: SuffixAutomaton = field(default_factory=SuffixAutomaton)
    num_source: int = 0  # tokens in the index that stand before the context: what an encoder read
    places: dict[Part, _Place] = field(default_factory=dict)
    output: list[int] = field(default_factory=list)


class SuffixState:
    """For each row an index of its own text, and its place in each part of the corpus."""

    taps: Sequence[Tap] = ()

    def __init__(self, drafter: Suffix, vocab_size: int, num_sequences: int) -> None:
        self._drafter = drafter
        self._vocab_size = vocab_size
        self._rows = [_Row() for _ in range(num_sequences)]

    def begin(self, row: int, source: Source | None) -> None:
        self._rows[row] = _Row()
        if isinstance(source, tuple):
            self._rows[row].num_source = len(source)
            for token_id in source:
                self._rows[row].index.append(token_id)

    def confidence(self, row: int, context: Sequence[int]) -> float:
        index, place = self._read(self._rows[row], context)
        guesses = self._following(index, place) if self._drafter.draft_lengths.after(place[1]) else []
        return max((confidence for confidence, _, _ in guesses), default=0.0)

    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[Limit],
        samplers: Sequence[Sampler],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        return [
            self._draft(row, context, limit) if limit.allows(0) else Draft()
            for row, (context, limit) in enumerate(zip(contexts, limits, strict=True))
        ]

    def _draft(self, row: int, context: Sequence[int], limit: Limit) -> Draft:
        index, place = self._read(self._rows[row], context)
        most = self._drafter.draft_lengths.after(place[1])

        def following(place: Place, depth: int) -> list[tuple[float, int, Place]]:
            return self._following(index, place) if depth < most else []

        return likeliest_paths(place, following, self._drafter.branching, limit)

    def _following(self, index: SuffixAutomaton, place: Place) -> list[tuple[float, int, Place]]:
        """The most frequent tokens to come: how sure each is, and the place after it."""
        while place[1] and not (following := index.following(place)):
            place = index.shorten(place)  # a text's own end: the shorter ends of it went on
        if not place[1]:
            return []
        total = sum(count for count, _, _ in following)
        return [
            (match_confidence(place[1], count, total - count), token_id, index.follow(place, token_id))
            for count, _, token_id in nlargest(self._drafter.branching, following)
            if 0 <= token_id < self._vocab_size
        ]

    def _read(self, row: _Row, context: Sequence[int]) -> tuple[SuffixAutomaton, Place]:
        """Read what is new; the index with the longest match, and its place. The row's own comes first."""
        for token_id in context[len(row.index) - row.num_source :]:
            row.index.append(token_id)
        best = row.index, row.index.match
        parts = self._drafter.corpus.parts
        row.places = {part: row.places.get(part, _Place()) for part in parts}
        for part, place in row.places.items():
            if place.num_read < len(context) - _LONGEST_MATCH:
                place.at, place.num_read = part.index.root, len(context) - _LONGEST_MATCH
            for token_id in context[place.num_read :]:
                place.at = part.index.follow(place.at, token_id)
            place.num_read = len(context)
            if place.at[1] > best[1][1]:
                best = part.index, place.at
        return best

    def observe(self, step: Step) -> None:
        if self._drafter.learn:
            row = self._rows[step.row]
            row.output += step.emitted
            if step.finish_reason:
                self._drafter.corpus.add(row.output)

    def close(self) -> None:
        self._rows.clear()
