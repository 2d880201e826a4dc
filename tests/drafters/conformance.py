"""What the suite for drafters runs on. A new drafter joins it with one line in DRAFTERS."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from draftwise.control.base import Limit, UpTo
from draftwise.drafters.base import Drafter, DraftState
from draftwise.drafters.corpus import Corpus
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.growth import DynamicTree, StaticTree
from draftwise.drafters.input_copy import InputCopy
from draftwise.drafters.ngram import NgramModel
from draftwise.drafters.none import NoDrafter
from draftwise.drafters.online_ngram import OnlineNgramModel
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.drafters.recycling import TokenRecycling
from draftwise.drafters.several import Several
from draftwise.drafters.suffix import Suffix
from draftwise.drafters.translation.model import TranslatedModel
from draftwise.drafters.translation.text import TextDraftModel
from draftwise.drafters.tree import TreeDraftModel
from draftwise.models.base import LanguageModel
from draftwise.models.tabular import TabularModel
from draftwise.randomness import Randomness, Streams
from draftwise.sampling import Sampler, SamplingParams
from draftwise.types import Draft, Logits, Seconds, Step
from tests.fakes import byte_pairs

VOCAB_SIZE = 4
# The last two are the bytes of é.
TOKENIZER = byte_pairs("a", "b", "ab", "Ġ", "Ã", "©")
# Targets whose vocabulary is as wide as the draft models', narrower and wider.
TARGETS = [
    TabularModel.random(vocab_size, order=2, seed=1, scale=1.5, tokenizer=TOKENIZER)
    for vocab_size in (VOCAB_SIZE, 3, 6)
]
TARGET = TARGETS[0]

SAMPLINGS = [
    SamplingParams(),
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.7, top_k=3),
    SamplingParams(temperature=1.3, top_p=0.8, min_p=0.05),
]


@dataclass(frozen=True)
class Case:
    """A drafter to test. `model`: what it samples from; None for a deterministic drafter."""

    name: str
    drafter: Drafter
    model: LanguageModel | None = None

    @property
    def in_float64(self) -> bool:
        """Whether its distributions are exact enough to be enumerated."""
        return not isinstance(self.model, NgramModel | OnlineNgramModel)


def draft_model(name: str, model: LanguageModel, drafter: Drafter | None = None) -> Case:
    return Case(name, DraftModel(model, drafter=drafter), model)


TABLE = TabularModel.random(VOCAB_SIZE, order=2, seed=2)
# Some tokens are the target's with other ids, one is several of its tokens, and some it lacks.
FOREIGN = TabularModel.random(6, order=2, seed=4, tokenizer=byte_pairs("ba", "a", "Ġ", "c", "b", "Ã"))
TRANSLATED = TranslatedModel(FOREIGN, TARGETS[2])
CORPUS = np.random.default_rng(3).integers(VOCAB_SIZE, size=(4, 30)).tolist()

RECYCLING, RECYCLING_TREE = (
    TokenRecycling(num_candidates=2, learn=False, branching=branching) for branching in (1, 2)
)
for drafter in (RECYCLING, RECYCLING_TREE):
    drafter.candidates.update({0: (1, 2), 1: (2, 0), 2: (2, 1)})

DRAFTERS = [
    Case("none", NoDrafter()),
    Case("prompt-lookup", PromptLookup()),
    Case("long-prompt-lookup", PromptLookup(draft_lengths=[(1, 5)])),
    draft_model("draft-model", TABLE),
    draft_model("draft-model-of-short-context", TabularModel(TABLE.table, max_length=13)),
    draft_model("the-target-itself", TARGET),
    draft_model("unigram", NgramModel.count(CORPUS, VOCAB_SIZE, order=1)),
    draft_model("bigram", NgramModel.count(CORPUS, VOCAB_SIZE, order=2)),
    draft_model("4-gram", NgramModel.count(CORPUS, VOCAB_SIZE, order=4)),
    Case("dynamic-tree", TreeDraftModel(TABLE)),
    Case("small-dynamic-tree", TreeDraftModel(TABLE, DynamicTree(5, width=2, depth=3))),
    Case("static-tree", TreeDraftModel(TABLE, StaticTree.branching(2, 2))),
    Case(
        "static-tree-of-short-context",
        TreeDraftModel(TabularModel(TABLE.table, max_length=13), StaticTree.branching(2, 1, 1)),
    ),
    Case("drawn-tree", TreeDraftModel(TABLE, StaticTree.branching(2, 2), sampled=True), TABLE),
    draft_model("online-unigram", OnlineNgramModel(VOCAB_SIZE, order=1)),
    draft_model("online-3-gram", OnlineNgramModel(VOCAB_SIZE, order=3)),
    draft_model(
        "online-3-gram-over-bigram",
        OnlineNgramModel(VOCAB_SIZE, order=3, prior=NgramModel.count(CORPUS, VOCAB_SIZE, order=2)),
    ),
    draft_model("draft-model-with-lookup", TABLE, PromptLookup()),
    draft_model("draft-model-with-draft-model", TABLE, DraftModel(TARGET, num_draft_tokens=3)),
    draft_model(
        "draft-models-and-lookup", TABLE, DraftModel(TARGETS[2], num_draft_tokens=3, drafter=PromptLookup())
    ),
    draft_model(
        "draft-model-of-short-context-with-lookup",
        TabularModel(TABLE.table, max_length=13),
        PromptLookup(draft_lengths=[(1, 5)]),
    ),
    Case("suffix", Suffix()),
    Case("suffix-with-corpus", Suffix(Corpus.of(CORPUS, 100), learn=False)),
    Case("suffix-tree", Suffix(Corpus.of(CORPUS, 100), learn=False, branching=3)),
    Case("copy", InputCopy()),
    Case("copy-of-a-source", InputCopy([0, 1, 3, 1, 2, 0, 5, 2])),
    Case("recycling", RECYCLING),
    Case("recycling-tree", RECYCLING_TREE),
    draft_model("translated", TRANSLATED),
    draft_model(
        "translated-of-short-context",
        TranslatedModel(TabularModel(FOREIGN.table, max_length=13, tokenizer=FOREIGN.tokenizer), TARGETS[2]),
    ),
    Case("translated-tree", TreeDraftModel(TRANSLATED, StaticTree.branching(2, 2), sampled=True), TRANSLATED),
    Case("text", TextDraftModel(FOREIGN)),
    Case("several", Several([NoDrafter(), DraftModel(TABLE), PromptLookup()]), TABLE),
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

    def allows(self, num_drafted: int, confidence: float | None = None) -> bool:
        assert not self.refused, "a drafter asked again after it was refused"
        assert num_drafted in (self.allowed - 1, self.allowed), (
            "a drafter asked for another token than the next"
        )
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
                turn, drafted = row.turns[number], asked[index].draft.token_ids
                num_accepted = min(turn.num_accepted, len(drafted))
                emitted = (*drafted[:num_accepted], *turn.then)
                contexts[index].extend(emitted)
                pieces = ("",) * len(emitted)
                num_fed = len(drafted) + 1
                state.observe(Step(index, drafted, num_accepted, emitted, pieces, num_fed, Seconds()))
        yield asked


def assert_same_draft(one: Draft, other: Draft) -> None:
    assert one.token_ids == other.token_ids
    assert one.parents == other.parents
    assert (one.probs is None) == (other.probs is None)
    for row, other_row in zip(one.probs or (), other.probs or (), strict=True):
        assert_array_equal(row, other_row)


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
def target_and_rows(draw: Any, max_rows: int = 1) -> tuple[TabularModel, list[Row]]:
    target = draw(st.sampled_from(TARGETS))
    return target, draw(st.lists(rows(target.vocab_size), min_size=1, max_size=max_rows))


def open_for(
    case: Case,
    target: LanguageModel,
    num_sequences: int = 1,
    max_length: int = 100,
    prompt: Sequence[int] | None = None,
) -> DraftState:
    """A new state, which has seen the prompt of its one row if that is given."""
    state = case.drafter.open(target, num_sequences, max_length)
    if prompt is not None:
        ask_one(state, prompt, 0, SamplingParams())
    return state


def next_logits(model: LanguageModel, target: LanguageModel, tokens: Sequence[int]) -> Logits:
    """Logits after `tokens` from a pass over all of them, cut to the vocabulary that the target shares."""
    known = [min(token_id, model.vocab_size - 1) for token_id in tokens]
    (logits,) = model.open(1, len(tokens)).forward([known], [1])
    return logits[-1, : target.vocab_size]


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
