"""Drafts by text, with tokenizers trained on one corpus in several families."""

from collections import Counter
from itertools import pairwise

import pytest
from scipy.stats import chisquare

from draftwise.decoding import generate
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.ngram import NgramModel
from draftwise.drafters.translation.model import TranslatedModel
from draftwise.drafters.translation.text import TextDraftModel
from draftwise.errors import OptionError, TokenizerMismatchError
from draftwise.models.tabular import TabularModel
from draftwise.models.torch import TorchModel
from draftwise.sampling import SamplingParams
from draftwise.tokenizer import Tokenizer
from draftwise.types import Generation
from draftwise.verification import RULES
from tests.drafters.conformance import ask, ask_one
from tests.drafters.test_draft_model import RecordingModel, fed
from tests.enumeration import law_of_target
from tests.fakes import byte_pairs
from tests.models.tiny import ARCHITECTURES, llama, one_thread
from tests.test_joint_law import without_residual
from tests.test_tokenizer import byte_fallback, byte_level, unigram
from tests.tiny_folders import CORPUS

__all__ = ["one_thread"]
GREEDY = SamplingParams()
SAMPLED = SamplingParams(temperature=1.0)
TEXT = " ".join(CORPUS) + " 😀 中文"
FAMILIES = {"byte-level": byte_level, "unigram": unigram, "byte-fallback": byte_fallback}
TOKENIZERS = {name: Tokenizer(family(), name=name) for name, family in FAMILIES.items()}
# Unigram models have no token for what they were not trained on, so they recite the corpus alone.
TEXTS = {"byte-level": TEXT, "byte-fallback": TEXT, "unigram": " ".join(CORPUS[:2])}


def reciter(name: str, text: str) -> NgramModel:
    """A model that knows a text by heart."""
    tokenizer = TOKENIZERS[name]
    token_ids = tokenizer.encode(text)
    return NgramModel.count([token_ids], tokenizer.vocab_size, 9, tokenizer=tokenizer, name=name)


def recited(target: NgramModel, drafter: DraftModel | TextDraftModel, text: str) -> Generation:
    assert target.tokenizer
    token_ids = target.tokenizer.encode(text)
    length = len(token_ids) - 8
    made = generate(target, token_ids[:8], drafter=drafter, num_draft_tokens=4, max_new_tokens=length)
    assert made.token_ids == tuple(token_ids[8:])
    return made


PAIRS = [(one, other) for one in FAMILIES for other in FAMILIES if one != other]


@pytest.mark.parametrize(("target", "draft"), PAIRS)
def test_what_both_know_is_drafted_in_the_targets_tokens(target: str, draft: str) -> None:
    text = min(TEXTS[target], TEXTS[draft], key=len)
    drafter = TextDraftModel(reciter(draft, text))
    made = recited(reciter(target, text), drafter, text)
    assert made.acceptance_rate is not None
    assert made.acceptance_rate > 0.7
    assert made.mean_acceptance_length > 2.5


@pytest.mark.parametrize(("target", "draft"), PAIRS)
def test_what_both_spell_alike_is_drafted(target: str, draft: str) -> None:
    text = min(TEXTS[target], TEXTS[draft], key=len)
    knows, drafts = reciter(target, text), reciter(draft, text)
    made = recited(knows, DraftModel(TranslatedModel(drafts, knows)), text)
    assert made.acceptance_rate is not None
    assert made.acceptance_rate > 0.1


@pytest.mark.parametrize(("target_tokenizer", "draft_tokenizer"), PAIRS)
def test_greedy_output_is_plain_output(target_tokenizer: str, draft_tokenizer: str) -> None:
    """Of models that write anything, so that drafts end amid words and characters."""
    target_side, draft_side = TOKENIZERS[target_tokenizer], TOKENIZERS[draft_tokenizer]
    target = TorchModel(llama(vocab_size=target_side.vocab_size), target_side)
    draft = TorchModel(ARCHITECTURES["gpt2"](vocab_size=draft_side.vocab_size), draft_side)
    prompt = target_side.encode("The quick brown naïve")
    plain = generate(target, prompt, max_new_tokens=40).token_ids
    for drafter in (TextDraftModel(draft), DraftModel(TranslatedModel(draft, target))):
        drafted = generate(target, prompt, drafter=drafter, num_draft_tokens=4, max_new_tokens=40)
        assert drafted.token_ids == plain


TARGET = TabularModel.random(4, 2, seed=1, tokenizer=byte_pairs("a", "b", "ab", "Ġ"))
PROMPT = (0, 1, 2, 3)


def sampled_law(drafter: TextDraftModel) -> float:
    """The p-value of joint counts of two tokens against the target's law."""
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(1500):
        made = generate(
            TARGET, PROMPT, drafter=drafter, sampling=SAMPLED, max_new_tokens=3, num_draft_tokens=2, seed=seed
        )
        counts[made.token_ids[:2]] += 1
    law = law_of_target(TARGET, PROMPT, 2, SAMPLED)
    return float(chisquare([counts[tokens] for tokens in law], [1500 * law[tokens] for tokens in law]).pvalue)


def test_sampled_counts_are_the_targets_and_expose_a_missing_residual(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drafter = TextDraftModel(TabularModel.random(3, 2, seed=3, tokenizer=byte_pairs("b", "ba", "a")))
    assert sampled_law(drafter) > 1e-3
    monkeypatch.setitem(RULES, "auto", without_residual)
    assert sampled_law(drafter) < 1e-9


def writer(*written: str, own: Tokenizer) -> RecordingModel:
    """A model that writes one token after another, whatever came before: each follows the one before it."""
    table = TabularModel.random(own.vocab_size, 1, seed=0).table
    ids = {spelling.decode(): token_id for token_id, spelling in own.spellings.items()}
    for one, other in pairwise(written):
        table[ids[one], ids[other]] = 50.0
    return RecordingModel(table, tokenizer=own, eos_token_ids=own.eos_token_ids)


def test_the_end_of_the_text_that_is_spelled_otherwise_is_read_again() -> None:
    """The target ends a word where the draft model has one token for more."""
    model = writer("ab", " ", "a", "b", own=byte_pairs("a", "b", "ab", "Ġ"))
    target = TabularModel.random(3, tokenizer=byte_pairs("a", "b", "Ġ"))
    state = TextDraftModel(model).open(target, 1, 50)
    ask_one(state, [0], 0, GREEDY)
    assert fed(model) == []
    ask_one(state, [0], 1, GREEDY)
    ask_one(state, [0, 1], 1, GREEDY)
    assert [feed for (feed,) in fed(model)][-1] == [2]
    assert ask_one(state, [0, 1], 2, GREEDY).draft.token_ids == (2, 0)


def test_a_word_begun_is_gone_on_with() -> None:
    """The draft model's next token is the rest of a word, which alone would be spelled otherwise."""
    model = writer("th", "e", " ", own=byte_pairs("th", "e", "Ġ", "t", "h"))
    target = TabularModel.random(5, tokenizer=byte_pairs("the", "he", "t", "h", "e"))
    asked = ask_one(TextDraftModel(model).open(target, 1, 50), [2, 3], 1, GREEDY)
    assert asked.draft.token_ids == (4,)


def test_drafts_end_with_the_text() -> None:
    model = writer("a", "b", "</s>", "a", own=byte_pairs("a", "b", eos="</s>"))
    target = TabularModel.random(3, tokenizer=byte_pairs("b", "a", eos="<end>"), eos_token_ids=[2])
    drafted = ask_one(TextDraftModel(model).open(target, 1, 50), [1], 6, GREEDY).draft
    assert drafted.token_ids == (0, 2)
    assert [feed for (feed,) in fed(model)] == [[0], [1]]


def test_writing_what_never_makes_a_token_ends() -> None:
    model = writer("a", "a", own=byte_pairs("a", "b"))
    target = TabularModel.random(1, tokenizer=byte_pairs("b"))
    assert not ask_one(TextDraftModel(model).open(target, 1, 50), [0], 6, GREEDY).draft
    assert len(fed(model)) == 2


def test_a_prompt_without_text_is_drafted_after() -> None:
    model = writer("b", "a", own=byte_pairs("b", "a"))
    target = TabularModel.random(9, tokenizer=byte_pairs("a", "b"))
    for drafter in (TextDraftModel(model), DraftModel(TranslatedModel(model, target))):
        assert ask_one(drafter.open(target, 1, 50), [7], 1, GREEDY).draft.token_ids == (0,)


def test_rows_are_written_together() -> None:
    model = writer("a", "b", "a", own=byte_pairs("a", "b"))
    target = TabularModel.random(2, tokenizer=byte_pairs("b", "a"))
    asked = ask(TextDraftModel(model).open(target, 3, 50), [[0], [1], [1]], [2, 0, 1], [GREEDY] * 3, [0] * 3)
    assert [one.draft.token_ids for one in asked] == [(1, 0), (), (0,)]
    assert fed(model) == [[[1], [], [0]], [[0], [], []]]


def test_names_and_errors() -> None:
    drafter = TextDraftModel(TARGET, num_draft_tokens=7)
    assert (drafter.name, drafter.default_num_draft_tokens) == ("tabular (SLEM)", 7)
    assert TextDraftModel(TARGET, "small").name == "small"
    with pytest.raises(OptionError, match="num_draft_tokens"):
        TextDraftModel(TARGET, num_draft_tokens=0)
    with pytest.raises(TokenizerMismatchError, match="has no tokenizer"):
        TextDraftModel(TabularModel.random(3)).open(TARGET, 1, 10)
