"""Guess with what the target nearly said before: its likeliest candidates after each token are kept."""

from collections import ChainMap
from collections.abc import MutableMapping, Sequence

from draftwise.checks import whole_number
from draftwise.control.base import Limit
from draftwise.drafters.likeliest_paths import likeliest_paths, refuse_branching
from draftwise.models.base import LanguageModel, Tap
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler, likeliest
from draftwise.types import Draft, Source, Step

Candidates = MutableMapping[int, tuple[int, ...]]


class TokenRecycling:
    """Follows the latest candidates of each token; its drafts are deterministic (Luo et al., 2408.08696).

    Every distribution that the target computes, of rejected guesses too, leaves its likeliest tokens behind,
    by the token that it follows: `num_candidates` of them. `learn`: whether they outlive the sequence that
    they come from.
    `branching`: how many of the candidates are guessed at one position; 1 makes chains.
    Raises OptionError for a number below 1.
    """

    def __init__(
        self,
        num_candidates: int = 8,
        *,
        learn: bool = True,
        branching: int = 1,
        num_draft_tokens: int = 3,
        name: str = "recycling",
    ) -> None:
        self.name = name
        self.num_candidates = whole_number("num_candidates", num_candidates, least=1)
        self.branching = whole_number("branching", branching, least=1)
        self.learn = learn
        self.default_num_draft_tokens = whole_number("num_draft_tokens", num_draft_tokens, least=1)
        self.candidates: Candidates = {}  # of finished sequences

    def open(self, target: LanguageModel, num_sequences: int, max_length: int) -> "TokenRecyclingState":
        """Start drafting; raises UnsupportedError for a branching that the target cannot score."""
        refuse_branching(self.branching, target)
        return TokenRecyclingState(self, num_sequences)


class TokenRecyclingState:
    """For each row what was learnt of its sequence, before what was known of finished ones."""

    taps: Sequence[Tap] = ()

    def __init__(self, drafter: TokenRecycling, num_sequences: int) -> None:
        self._drafter = drafter
        self._new: list[Candidates] = [{} for _ in range(num_sequences)]
        self._candidates = [ChainMap(new, drafter.candidates) for new in self._new]
        self._last = [-1] * num_sequences  # the token that each row's latest draft follows

    def begin(self, row: int, source: Source | None) -> None:
        self._finish(row)

    def confidence(self, row: int, context: Sequence[int]) -> float | None:
        self._last[row] = context[-1]  # whoever is chosen to draft, there is something to learn
        return 0.5 if context[-1] in self._candidates[row] else 0.0

    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[Limit],
        samplers: Sequence[Sampler],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        self._last = [context[-1] for context in contexts]
        return [
            self._draft(known, token_id, limit)
            for known, token_id, limit in zip(self._candidates, self._last, limits, strict=True)
        ]

    def _draft(self, known: Candidates, token_id: int, limit: Limit) -> Draft:
        branching = self._drafter.branching

        def following(token_id: int, depth: int) -> list[tuple[float, int, int]]:
            candidates = known.get(token_id, ())[:branching]
            return [(0.5 ** (rank + 1), candidate, candidate) for rank, candidate in enumerate(candidates)]

        return likeliest_paths(token_id, following, branching, limit)

    def observe(self, step: Step) -> None:
        if step.logits is not None:
            for token_id, logits in zip((self._last[step.row], *step.drafted), step.logits, strict=True):
                self._new[step.row][token_id] = tuple(likeliest(logits, self._drafter.num_candidates))

    def _finish(self, row: int) -> None:
        if self._drafter.learn:
            self._drafter.candidates.update(self._new[row])
        self._new[row].clear()

    def close(self) -> None:
        for row in range(len(self._new)):
            self._finish(row)
