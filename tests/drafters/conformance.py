"""Drives a drafter as the loop does, beside a target that reads what was drafted and emitted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from draftwise.control.base import Limit, UpTo
from draftwise.drafters.base import DraftState
from draftwise.models.base import LanguageModel
from draftwise.randomness import Randomness, Streams
from draftwise.sampling import Sampler, SamplingParams
from draftwise.types import Draft, Seconds, Source, Step
from tests.drafters.case import Case

SAMPLINGS = [
    SamplingParams(),
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.7, top_k=3),
    SamplingParams(temperature=1.3, top_p=0.8, min_p=0.05),
]


@dataclass(frozen=True)
class Turn:
    """One round of a row: ask for a draft, accept the start of it, and append what comes after."""

    limit: int
    num_accepted: int
    then: tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """A sequence to draft for; its contexts depend on what is drafted."""

    prompt: tuple[int, ...]
    turns: tuple[Turn, ...]
    sampling: SamplingParams
    seed: int


@dataclass(frozen=True)
class Asked:
    """A draft, and what it was asked for with."""

    context: tuple[int, ...]
    limit: int
    sampling: SamplingParams
    seed: int
    draft: Draft


@dataclass
class Sure(Limit):
    """Allows a number of tokens, each only where the drafter is sure enough of it before it is drawn."""

    most: int
    least_confidence: float
    allowed: int = 0
    refused: bool = False

    def choose(self, confidences: Sequence[float | None]) -> int | None:
        return UpTo(self.most).choose(confidences)

    def allows(self, num_drafted: int, confidence: float | None = None, parent: int | None = None) -> bool:
        assert parent is not None or not self.refused, "a drafter of chains asked again after it was refused"
        assert (
            0 <= num_drafted <= self.allowed
            if parent is not None
            else num_drafted in (self.allowed - 1, self.allowed)
        ), "a drafter asked for another token than the next"
        assert parent is None or -1 <= parent < num_drafted, "a drafter asked for a token without a parent"
        unsure = confidence is not None and confidence < self.least_confidence
        self.refused = unsure or num_drafted >= self.most
        if not self.refused:
            self.allowed = num_drafted + 1
        return not self.refused


def ask(
    state: DraftState,
    contexts: Sequence[Sequence[int]],
    limits: Sequence[int],
    sampling: Sequence[SamplingParams],
    seeds: Sequence[int],
    least_confidence: float = 0.0,
) -> list[Asked]:
    """Propose once, each row with a random stream of its own, and check what every draft must be."""
    lent = [list(context) for context in contexts]
    for row, context in enumerate(lent):
        confidence = state.confidence(row, context)
        assert confidence is None or 0 <= confidence <= 1
    asked = [Sure(limit, least_confidence) for limit in limits]
    samplers = [Sampler(each) for each in sampling]
    drafts = state.propose(lent, asked, samplers, [drafting(seed) for seed in seeds])
    assert lent == [list(context) for context in contexts], "a drafter changed a context"
    for context in lent:
        context.clear()  # nor may it keep one
    for draft, limit in zip(drafts, asked, strict=True):
        assert len(draft) <= min(limit.most, limit.allowed)
    return [
        Asked(tuple(contexts[row]), limits[row], sampling[row], seeds[row], draft)
        for row, draft in enumerate(drafts)
    ]


def ask_one(
    state: DraftState,
    context: Sequence[int],
    limit: int,
    sampling: SamplingParams,
    seed: int = 0,
    least_confidence: float = 0.0,
) -> Asked:
    return ask(state, [context], [limit], [sampling], [seed], least_confidence)[0]


def drafting(seed: int) -> Randomness:
    return Streams.seeded(seed).drafting


class BesideTarget:
    """A drafter's state whose target reads each context, all but its last token, before a draft is asked for.

    What follows a context is taken for what became of its draft: the tokens that agree were accepted.
    """

    def __init__(self, case: Case, target: LanguageModel, num_sequences: int, max_length: int) -> None:
        self._state = case.make(target).open(target, num_sequences, max_length)
        self.taps = self._state.taps
        self._cache = target.open(num_sequences, max_length, taps=self.taps)
        self._drafts = [Draft()] * num_sequences
        self._texts: list[list[int]] = [[] for _ in range(num_sequences)]
        for row in range(num_sequences):
            self.begin(row, None)

    def begin(self, row: int, source: Source | None) -> None:
        self._cache.begin(row, source)
        self._state.begin(row, source)
        self._drafts[row], self._texts[row] = Draft(), []

    def _read(self, row: int, context: Sequence[int]) -> None:
        draft, text = self._drafts[row], self._texts[row]
        if draft and len(text) < len(context):
            self._drafts[row] = Draft()
            path = accepted(draft, context[len(text) : -1])
            emitted = context[len(text) : len(text) + len(path) + 1]
            self._pass(row, text[self._cache.lengths[row] :], draft, path, emitted)
        if len(context) == 1:  # nothing is to be read before a draft
            text[:] = context
        elif len(text) < len(context):
            self._pass(row, context[self._cache.lengths[row] : -1], Draft(), (), context[len(text) :])

    def _pass(
        self, row: int, tokens: Sequence[int], draft: Draft, path: tuple[int, ...], emitted: Sequence[int]
    ) -> None:
        """One pass over text and a draft, and a step that says what became of it.

        It says nothing of the logits, from which drafters may learn: then a draft would depend on the past.
        """
        feeds: list[list[int]] = [[] for _ in self._texts]
        parents: list[list[int] | None] = [None for _ in self._texts]
        feeds[row], parents[row] = [*tokens, *draft.token_ids], draft.parents_after(len(tokens))
        held = self._cache.lengths[row] + len(tokens)
        wanted = [len(draft) + 1 if feed else 0 for feed in feeds]
        self._cache.forward(feeds, wanted, parents)
        self._cache.keep_path(row, held, [held + index for index in path])
        self._texts[row] += emitted
        self._state.observe(
            Step(
                row,
                draft.token_ids,
                len(path),
                tuple(emitted),
                ("",) * len(emitted),
                len(feeds[row]),
                Seconds(),
                parents=draft.parents,
                path=path,
            )
        )

    def confidence(self, row: int, context: Sequence[int]) -> float | None:
        self._read(row, context)
        return self._state.confidence(row, context)

    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[Limit],
        samplers: Sequence[Sampler],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        for row, context in enumerate(contexts):
            self._read(row, context)
        self._drafts = self._state.propose(contexts, limits, samplers, randomness)
        return self._drafts.copy()

    def observe(self, step: Step) -> None:
        raise AssertionError("the state sees what became of a draft when the next one is asked for")

    def close(self) -> None:
        self._state.close()
        self._cache.close()


def accepted(draft: Draft, tokens: Sequence[int]) -> tuple[int, ...]:
    """The longest path of a draft that agrees with what followed."""
    children, path = draft.children(), list[int]()
    for token_id in tokens:
        below = children[path[-1] + 1 if path else 0]
        agreeing = next((child for child in below if draft.token_ids[child] == token_id), None)
        if agreeing is None:
            break
        path.append(agreeing)
    return tuple(path)


def play(state: DraftState, rows: Sequence[Row]) -> Iterator[list[Asked]]:
    """Drive rows through their turns as the loop does; a row whose turns are over is a finished one."""
    contexts = [list(row.prompt) for row in rows]
    for number in range(max(len(row.turns) for row in rows)):
        active = [number < len(row.turns) for row in rows]
        asked = ask(
            state,
            contexts,
            [row.turns[number].limit if on else 0 for row, on in zip(rows, active, strict=True)],
            [row.sampling for row in rows],
            [row.seed + number for row in rows],
        )
        for index, row in enumerate(rows):
            if active[index]:
                turn = row.turns[number]
                contexts[index] += first_path(asked[index].draft)[: turn.num_accepted]
                contexts[index] += turn.then
        yield asked


def first_path(draft: Draft) -> list[int]:
    """The tokens of a chain, or of the path of a tree that takes the first child each time."""
    children, path = draft.children(), list[int]()
    while below := children[path[-1] + 1 if path else 0]:
        path.append(below[0])
    return [draft.token_ids[index] for index in path]


def rows(vocab_size: int) -> st.SearchStrategy[Row]:
    """Rows in which anything may happen: no draft, any part of it accepted, several tokens at once."""
    tokens = st.integers(0, vocab_size - 1)
    turn = st.builds(
        Turn,
        limit=st.integers(0, 6),
        num_accepted=st.integers(0, 6),
        then=st.lists(tokens, min_size=1, max_size=3).map(tuple),
    )
    return st.builds(
        Row,
        prompt=st.lists(tokens, min_size=1, max_size=6).map(tuple),
        turns=st.lists(turn, min_size=1, max_size=5).map(tuple),
        sampling=st.sampled_from(SAMPLINGS),
        seed=st.integers(0, 1000),
    )


@st.composite
def target_and_rows(draw: Any, case: Case, max_rows: int = 1) -> tuple[LanguageModel, list[Row]]:
    target = draw(st.sampled_from(case.targets))
    return target, draw(st.lists(rows(target.vocab_size), min_size=1, max_size=max_rows))


def open_for(
    case: Case,
    target: LanguageModel,
    num_sequences: int = 1,
    max_length: int = 100,
    prompt: Sequence[int] | None = None,
) -> DraftState:
    """A new state, which has seen the prompt of its one row if that is given."""
    state = BesideTarget(case, target, num_sequences, max_length)
    if prompt is not None:
        ask_one(state, prompt, 0, SamplingParams())
    return state


def path_and_siblings(draft: Draft, index: int) -> tuple[list[int], list[int]]:
    """The tokens that a drafted token follows, and those drawn before it for the same position."""
    if draft.parents is None:
        return list(draft.token_ids[:index]), []
    siblings = [
        draft.token_ids[other] for other in range(index) if draft.parents[other] == draft.parents[index]
    ]
    path: list[int] = []
    while (index := draft.parents[index]) >= 0:
        path.insert(0, draft.token_ids[index])
    return path, siblings
