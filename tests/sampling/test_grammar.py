"""Grammars: the law of the output inside one, where it ends, and what is refused."""

from collections.abc import Sequence
from contextlib import closing
from re import fullmatch
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from draftwise import loop
from draftwise.control.base import UpTo
from draftwise.control.fixed import Fixed
from draftwise.decoding import generate
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.growth import DynamicTree, StaticTree
from draftwise.drafters.none import NoDrafter
from draftwise.drafters.tree import TreeDraftModel
from draftwise.errors import OptionError
from draftwise.models.tabular import TabularModel
from draftwise.request import Request
from draftwise.sampling import Sampler, SamplingParams
from draftwise.sampling.grammar import Grammar
from draftwise.tokenizer import Tokenizer
from draftwise.types import Draft, FinishReason, Logits
from tests.enumeration import Tokens, distance, law_of_generate, law_of_target
from tests.fakes import GuessingDrafter
from tests.sampling.naive import ended, matching
from tests.sampling.test_laws import SeesTheTextAlone, with_fault

PIECES = ("a", "b", "ab", "bb")
EOS = 4
PROMPT = (1, 0)
WARM = SamplingParams(1.2)


def tokenizer(name: str = "letters") -> Tokenizer:
    vocabulary = {piece: token_id for token_id, piece in enumerate(PIECES)}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, [("a", "b"), ("b", "b")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<eos>"])
    return Tokenizer(backend, name=name, eos_token_ids=[EOS])


# One token of padding beyond the tokenizer's.
TARGET = TabularModel.random(6, 2, seed=1, eos_token_ids=[EOS], tokenizer=tokenizer())
OTHER = TabularModel.random(6, 2, seed=2)
PATTERNS = {"an end that may wait": "(ab|b){1,2}a?", "letters": "(a|b){2,3}", "perhaps nothing": "b?"}
DRAFTERS: dict[str, Drafter] = {
    "none": NoDrafter(),
    "a draft model": DraftModel(OTHER),
    "one that knows a and b": DraftModel(TabularModel.random(2, 2, seed=4)),
    "one that knows a": DraftModel(TabularModel.random(1, 2, seed=4)),
    "a guessed draft model": DraftModel(OTHER, drafter=DraftModel(TARGET)),
    "a deterministic guess": GuessingDrafter(lambda tokens: [2, 3, 0]),
    "a guess beyond the end": GuessingDrafter(lambda tokens: [1, EOS, EOS, 0]),
    "a drawn tree": TreeDraftModel(OTHER, StaticTree.choices([(0,), (1,), (1, 0)]), sampled=True),
    "a tree of those who know a and b": TreeDraftModel(
        TabularModel.random(2, 2, seed=4), StaticTree.branching(2, 2), sampled=True
    ),
    "a dynamic tree": TreeDraftModel(OTHER, DynamicTree(5, width=2, depth=2)),
}


@pytest.mark.parametrize("temperature", [0.0, 1.2])
@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("drafter", DRAFTERS.values(), ids=DRAFTERS)
def test_the_law_inside_a_grammar(drafter: Drafter, pattern: str, temperature: float) -> None:
    sampling = SamplingParams(temperature, grammar=Grammar.regex(pattern))
    law = law_of_generate(TARGET, PROMPT, 4, drafter=drafter, sampling=sampling, num_draft_tokens=3)
    control = matching(pattern, PIECES, EOS, len(PROMPT), longest=6)
    assert distance(law, ended(law_of_target(TARGET, PROMPT, 4, sampling, control), [EOS])) < 1e-12
    for token_ids in law:
        if EOS in token_ids:
            assert fullmatch(pattern, "".join(PIECES[token_id] for token_id in token_ids[:-1]))


@pytest.mark.parametrize("drafter", DRAFTERS.values(), ids=DRAFTERS)
def test_the_law_where_the_spelling_is_forced(drafter: Drafter) -> None:
    """Letters that have to come are spelled as the tokenizer would spell them, and in one way alone."""
    sampling = SamplingParams(1.2, grammar=Grammar.regex("a(b|bab)"))

    def anew(tokens: Tokens, logits: Logits) -> Logits:
        start = Sampler.start(sampling, tokens[: len(PROMPT)], TARGET)
        return start.after(tokens[len(PROMPT) :]).controlled(logits)

    law = law_of_generate(TARGET, PROMPT, 4, drafter=drafter, sampling=sampling, num_draft_tokens=3)
    assert {token_ids[0] for token_ids in law} == {PIECES.index("ab")}
    assert distance(law, ended(law_of_target(TARGET, PROMPT, 4, sampling, anew), [EOS])) < 1e-12


@pytest.mark.parametrize("verification", ["token", "block", "matching"])
@pytest.mark.parametrize("name", ["a draft model", "a drawn tree"])
def test_under_every_rule(name: str, verification: str) -> None:
    pattern = PATTERNS["an end that may wait"]
    options: dict[str, Any] = {
        "drafter": DRAFTERS[name],
        "sampling": SamplingParams(0.9, top_p=0.95, grammar=Grammar.regex(pattern)),
        "num_draft_tokens": 2,
    }
    law = law_of_generate(TARGET, PROMPT, 3, verification=verification, **options)
    control = matching(pattern, PIECES, EOS, len(PROMPT), longest=6)
    expected = law_of_target(TARGET, PROMPT, 3, options["sampling"], control)
    assert distance(law, ended(expected, [EOS])) < 1e-12


@pytest.mark.parametrize("verification", ["coupled", "lenient", "typical"])
def test_the_output_matches_under_rules_that_are_not_enumerated(verification: str) -> None:
    sampling = SamplingParams(1.0, grammar=Grammar.regex("(a|b){3}(ab)*bb"))
    for seed in range(30):
        generation = generate(
            TARGET,
            PROMPT,
            drafter=DRAFTERS["a drawn tree"],
            sampling=sampling,
            max_new_tokens=200,
            verification=verification,
            lenience=0.5 if verification == "lenient" else 1.0,
            seed=seed,
        )
        assert generation.finish_reason is FinishReason.EOS
        assert fullmatch("(a|b){3}(ab)*bb", generation.text)


def test_a_grammar_that_sees_the_text_alone_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "Distributions", with_fault(SeesTheTextAlone))
    pattern = PATTERNS["an end that may wait"]
    sampling = SamplingParams(1.2, grammar=Grammar.regex(pattern))
    drafter = GuessingDrafter(lambda tokens: [1])
    law = law_of_generate(TARGET, PROMPT, 2, drafter=drafter, sampling=sampling, num_draft_tokens=3)
    control = matching(pattern, PIECES, EOS, len(PROMPT), longest=6)
    assert distance(law, ended(law_of_target(TARGET, PROMPT, 2, sampling, control), [EOS])) > 1e-3


def allowed(sampler: Sampler) -> list[int]:
    return np.flatnonzero(np.isfinite(sampler.controlled(np.zeros(TARGET.vocab_size)))).tolist()


def test_positions_in_any_order() -> None:
    start = Sampler.start(SamplingParams(grammar=Grammar.regex("(ab)+|bba")), PROMPT, TARGET)
    places: dict[tuple[int, ...], list[int]] = {
        (): [0, 1, 2, 3],
        (0,): [1],
        (2,): [0, 2, EOS],
        (0, 1): [0, 2, EOS],
        (3,): [0],
        (3, 0): [EOS],
        (3, 0, EOS): [EOS],
        (2, EOS): [EOS],
        (2, EOS, EOS): [EOS],
        (0, 0): [],
        (3, 0, 0): [],
        (EOS,): [],
        (0, 0, EOS): [],
    }
    order = np.random.default_rng(0).integers(len(places), size=300)
    for number in order:
        path, expected = list(places.items())[number]
        assert allowed(start.after(list(path))) == expected, path


FITTED = {
    "a chain": (Draft((2, 3, 0, 1)), Draft((2, 3, 0))),
    "nothing": (Draft((EOS, 2)), Draft()),
    "a forced end of a chain": (Draft((3, 0, 0)), Draft((3, 0))),
    "an end": (Draft((2, 3, 0, EOS)), Draft((2, 3, 0, EOS))),
    "beyond the end": (Draft((2, 3, 0, EOS, 0)), Draft((2, 3, 0, EOS))),
    "a tree": (
        Draft((0, 1, 2, 0, 3, 1, EOS, 1), None, (-1, -1, -1, 0, 2, 1, 4, 4)),
        Draft((0, 1, 2, 3, 1, EOS, 1), None, (-1, -1, -1, 2, 1, 3, 3)),
    ),
    "drawn": (Draft((0, 0), [np.ones(1)] * 2), Draft((0, 0), [np.ones(1)] * 2)),
}


@pytest.mark.parametrize(("draft", "expected"), FITTED.values(), ids=FITTED)
def test_a_draft_as_the_grammar_has_it(draft: Draft, expected: Draft) -> None:
    start = Sampler.start(SamplingParams(1.0, grammar=Grammar.regex("a?(b|bb)+a?")), PROMPT, TARGET)
    fitted = start.fit(draft, UpTo(4).allows)
    assert (fitted.token_ids, fitted.parents) == (expected.token_ids, expected.parents)
    assert (fitted.probs is None) == (expected.probs is None)
    assert (
        Sampler.start(SamplingParams(1.0), PROMPT, TARGET).fit(draft, lambda count, confidence: count < 4)
        is draft
    )


def test_what_the_grammar_forces_is_drafted_as_far_as_allowed() -> None:
    start = Sampler.start(SamplingParams(grammar=Grammar.regex("abbb(a|b)")), PROMPT, TARGET)
    whole = start.fit(Draft(), UpTo(9).allows)
    assert "".join(PIECES[token_id] for token_id in whole.token_ids) in ("ab", "abb", "abbb")
    for limit in range(len(whole)):
        assert start.fit(Draft(), UpTo(limit).allows) == Draft(whole.token_ids[:limit])
    on = start.fit(Draft(whole.token_ids[:1]), UpTo(9).allows)
    assert on.token_ids[: len(whole)] == whole.token_ids
    plain = generate(TARGET, PROMPT, sampling=start.params, num_draft_tokens=0)
    assert not any(step.drafted for step in plain.steps)
    drafted = generate(TARGET, PROMPT, sampling=start.params, drafter=NoDrafter(), num_draft_tokens=4)
    assert drafted.token_ids == plain.token_ids
    assert drafted.target_passes < plain.target_passes


def test_several_eos_tokens() -> None:
    target = TabularModel.random(6, eos_token_ids=[EOS, 3], tokenizer=tokenizer())
    sampler = Sampler.start(SamplingParams(grammar=Grammar.regex("a")), PROMPT, target)
    assert allowed(sampler.after([0])) == [3, EOS]


def test_kinds_of_grammar() -> None:
    for grammar, text in (
        (Grammar.regex("a+b"), "aab"),
        (Grammar.lark('start: "a" b\nb: "b" b | "b"'), "abbb"),
        (Grammar.json_schema({"const": 1}), "1"),
    ):
        assert SamplingParams(grammar=grammar) == SamplingParams(grammar=grammar)
        assert text or grammar.definition


def test_a_grammar_that_minimum_length_contradicts_is_said() -> None:
    sampling = SamplingParams(grammar=Grammar.regex("ab"), min_new_tokens=5)
    with pytest.raises(OptionError, match="leave no token that may follow"):
        generate(TARGET, PROMPT, sampling=sampling)


@pytest.mark.parametrize(
    ("make", "definition", "message"),
    [
        (Grammar.regex, "(", "unclosed group"),
        (Grammar.lark, "start: nothing", "unknown name"),
        (Grammar.json_schema, {"type": "wobble"}, "wobble"),
        (Grammar.json_schema, "{", "not JSON"),
        (Grammar.json_schema, "[1]", "not an object"),
        (Grammar.json_schema, [], "the JSON schema is"),
    ],
    ids=str,
)
def test_definitions_are_refused(make: Any, definition: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message) as raised:
        make(definition)
    assert "\n" not in str(raised.value)


def test_targets_are_refused() -> None:
    sampling = SamplingParams(grammar=Grammar.regex("a"))
    with pytest.raises(OptionError, match="no tokenizer"):
        generate(TabularModel.random(5, eos_token_ids=[EOS]), PROMPT, sampling=sampling)
    with pytest.raises(OptionError, match="ends the output with eos"):
        generate(TARGET, PROMPT, sampling=sampling, ignore_eos=True)


def test_text_is_banned_as_the_tokenizer_spells_it() -> None:
    sampler = Sampler.start(SamplingParams(banned=["abb"]), PROMPT, TARGET)
    assert tokenizer().encode("abb") == [2, 1]
    assert 1 not in allowed(sampler.after([2]))
    assert 1 in allowed(sampler)


def test_rows_with_controls_of_their_own_are_the_same_alone() -> None:
    settings = [
        SamplingParams(1.0, grammar=Grammar.regex("(ab|b)*a")),
        SamplingParams(1.0, grammar=Grammar.regex("[ab]{2,9}")),
        SamplingParams(1.0, repetition_penalty=1.5, banned=[[0, 1], "bb"], min_new_tokens=4),
        SamplingParams(1.0),
    ]
    drafter = DRAFTERS["a drawn tree"]

    def run(chosen: Sequence[int]) -> list[list[int]]:
        rows = [
            Request(PROMPT, sampling=settings[number], max_new_tokens=20, seed=number).sequence(TARGET)
            for number in chosen
        ]
        with (
            closing(drafter.open(TARGET, len(rows), 60)) as drafting,
            closing(TARGET.open(len(rows), 60)) as cache,
        ):
            while not all(row.finish_reason for row in rows):
                loop.step(cache, drafting, Fixed(3), rows)
        return [row.token_ids for row in rows]

    assert run(range(4)) == [run([number])[0] for number in range(4)]
