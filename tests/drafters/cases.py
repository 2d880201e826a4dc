"""The drafters that the suite for drafters runs on. A new one joins it with one line in DRAFTERS."""

from collections.abc import Sequence

import numpy as np

from draftwise.drafters.base import Drafter
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
from draftwise.types import Logits
from tests.drafters.case import Case
from tests.drafters.heads.cases import HEADS
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


def case(name: str, drafter: Drafter, model: LanguageModel | None = None) -> Case:
    """A drafter that serves any target. `model`: what it samples from; None for a deterministic drafter."""

    def says(target: LanguageModel, context: Sequence[int], drafted: Sequence[int]) -> Logits:
        assert model is not None
        known = [min(token_id, model.vocab_size - 1) for token_id in (*context, *drafted)]
        (logits,) = model.open(1, len(known)).forward([known], [1])
        return logits[-1, : target.vocab_size]

    is_exact = not isinstance(model, NgramModel | OnlineNgramModel)
    return Case(name, lambda target: drafter, TARGETS, says if model else None, is_exact=is_exact)


def draft_model(name: str, model: LanguageModel, drafter: Drafter | None = None) -> Case:
    return case(name, DraftModel(model, drafter=drafter), model)


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

# What drafts for any target, and then what was made for one.
ANYWHERE = [
    case("none", NoDrafter()),
    case("prompt-lookup", PromptLookup()),
    case("long-prompt-lookup", PromptLookup(draft_lengths=[(1, 5)])),
    draft_model("draft-model", TABLE),
    draft_model("draft-model-of-short-context", TabularModel(TABLE.table, max_length=13)),
    draft_model("the-target-itself", TARGET),
    draft_model("unigram", NgramModel.count(CORPUS, VOCAB_SIZE, order=1)),
    draft_model("bigram", NgramModel.count(CORPUS, VOCAB_SIZE, order=2)),
    draft_model("4-gram", NgramModel.count(CORPUS, VOCAB_SIZE, order=4)),
    case("dynamic-tree", TreeDraftModel(TABLE)),
    case("small-dynamic-tree", TreeDraftModel(TABLE, DynamicTree(5, width=2, depth=3))),
    case("static-tree", TreeDraftModel(TABLE, StaticTree.branching(2, 2))),
    case(
        "static-tree-of-short-context",
        TreeDraftModel(TabularModel(TABLE.table, max_length=13), StaticTree.branching(2, 1, 1)),
    ),
    case("drawn-tree", TreeDraftModel(TABLE, StaticTree.branching(2, 2), sampled=True), TABLE),
    draft_model("online-unigram", OnlineNgramModel(VOCAB_SIZE, order=1)),
    draft_model("online-3-gram", OnlineNgramModel(VOCAB_SIZE, order=3)),
    draft_model(
        "online-3-gram-over-bigram",
        OnlineNgramModel(VOCAB_SIZE, order=3, prior=NgramModel.count(CORPUS, VOCAB_SIZE, order=2)),
    ),
    draft_model("draft-model-with-lookup", TABLE, PromptLookup()),
    draft_model("draft-model-with-draft-model", TABLE, DraftModel(TARGET, num_draft_tokens=3)),
    draft_model("draft-model-with-tree", TABLE, TreeDraftModel(TARGET, StaticTree.branching(2, 1))),
    draft_model(
        "draft-models-and-lookup", TABLE, DraftModel(TARGETS[2], num_draft_tokens=3, drafter=PromptLookup())
    ),
    draft_model(
        "draft-model-of-short-context-with-lookup",
        TabularModel(TABLE.table, max_length=13),
        PromptLookup(draft_lengths=[(1, 5)]),
    ),
    case("suffix", Suffix()),
    case("suffix-with-corpus", Suffix(Corpus.of(CORPUS, 100), learn=False)),
    case("suffix-tree", Suffix(Corpus.of(CORPUS, 100), learn=False, branching=3)),
    case("copy", InputCopy()),
    case("copy-of-a-source", InputCopy([0, 1, 3, 1, 2, 0, 5, 2])),
    case("recycling", RECYCLING),
    case("recycling-tree", RECYCLING_TREE),
    draft_model("translated", TRANSLATED),
    draft_model(
        "translated-of-short-context",
        TranslatedModel(TabularModel(FOREIGN.table, max_length=13, tokenizer=FOREIGN.tokenizer), TARGETS[2]),
    ),
    case("translated-tree", TreeDraftModel(TRANSLATED, StaticTree.branching(2, 2), sampled=True), TRANSLATED),
    case("text", TextDraftModel(FOREIGN)),
    case("several", Several([NoDrafter(), DraftModel(TABLE), PromptLookup()]), TABLE),
]
DRAFTERS = [*ANYWHERE, *HEADS]
