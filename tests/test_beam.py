"""Beam search: the target's own, with drafts and without, and transformers' on the same weights."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from draftwise.beam import BeamSearch, TrieScorer, beam_search
from draftwise.errors import OptionError, PromptError
from draftwise.models.tabular import TabularModel
from draftwise.models.torch.engine import TorchModel
from tests.models.tiny import VOCAB_SIZE, llama

PROMPT = (0, 1)


def target(vocab_size: int = 4, **options: Any) -> TabularModel:
    return TabularModel.random(vocab_size, 2, seed=1, **options)


def log_prob(model: TabularModel, tokens: tuple[int, ...]) -> float:
    total = 0.0
    for end in range(len(tokens)):
        logits = model.logits_after((*PROMPT, *tokens[:end]))
        total += logits[tokens[end]] - np.log(np.exp(logits).sum())
    return total


def test_a_beam_as_wide_as_the_vocabulary_finds_the_best_of_all() -> None:
    model = target(3)
    found = beam_search(model, PROMPT, num_beams=9, max_new_tokens=3)
    everything = sorted(product(range(3), repeat=3), key=lambda tokens: -log_prob(model, tokens))
    assert found.beams == tuple(everything[:9])
    assert found.scores == pytest.approx([log_prob(model, tokens) / 3 for tokens in everything[:9]])


def test_one_beam_is_greedy_decoding() -> None:
    model = target()
    tokens: tuple[int, ...] = PROMPT
    for _ in range(6):
        tokens += (int(model.logits_after(tokens).argmax()),)
    assert beam_search(model, PROMPT, num_beams=1, max_new_tokens=6).beams == (tokens[2:],)


DRAFTS = {
    "the target itself": target(),
    "a similar one": TabularModel(target().table + TabularModel.random(4, 2, seed=9, scale=0.5).table),
    "another": TabularModel.random(4, 2, seed=2),
    "a narrower one": TabularModel.random(3, 2, seed=2),
}


@pytest.mark.parametrize("eos_token_ids", [(), (2,)], ids=["no end", "an end token"])
@pytest.mark.parametrize("num_draft_tokens", [0, 1, 3])
@pytest.mark.parametrize("num_beams", [1, 2, 4])
@pytest.mark.parametrize("draft", DRAFTS.values(), ids=DRAFTS)
def test_drafting_changes_nothing_but_the_passes(
    draft: TabularModel, num_beams: int, num_draft_tokens: int, eos_token_ids: tuple[int, ...]
) -> None:
    model = target(eos_token_ids=eos_token_ids)
    plain = beam_search(model, PROMPT, num_beams=num_beams, max_new_tokens=8)
    drafted = beam_search(
        model,
        PROMPT,
        num_beams=num_beams,
        max_new_tokens=8,
        draft_model=draft,
        num_draft_tokens=num_draft_tokens,
    )
    assert drafted.beams == plain.beams
    assert drafted.scores == plain.scores
    assert drafted.target_passes <= plain.target_passes


def test_good_drafts_save_passes() -> None:
    plain = beam_search(target(), PROMPT, num_beams=3, max_new_tokens=12)
    assert plain.target_passes == 12
    own = beam_search(
        target(), PROMPT, num_beams=3, max_new_tokens=12, draft_model=target(), num_draft_tokens=3
    )
    assert own.target_passes == 3  # each pass goes three drafted steps and one more
    similar = beam_search(
        target(),
        PROMPT,
        num_beams=3,
        max_new_tokens=12,
        draft_model=DRAFTS["a similar one"],
        num_draft_tokens=3,
    )
    assert 3 <= similar.target_passes < 12


def test_scores_do_not_depend_on_what_was_scored_before() -> None:
    """Beams that agreed for a while go on, turn back to an earlier fork, and begin anew."""
    scorer = TrieScorer(target(), PROMPT, 40)
    for continuations in (
        [()],
        [(1,), (1, 2)],
        [(1, 2, 3), (1, 2, 0, 1)],
        [(1, 2, 0)],
        [(1, 3), (2,)],
        [(), (3, 1)],
    ):
        found = scorer.score(continuations)
        assert set(found) == set(continuations)
        for tokens, log_probs in found.items():
            logits = target().logits_after((*PROMPT, *tokens))
            np.testing.assert_allclose(log_probs, logits - np.log(np.exp(logits).sum()))
    assert scorer.passes == 6


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("ends_at", [None, 9], ids=["no end", "an end token"])
@pytest.mark.parametrize("num_beams", [2, 4])
def test_what_transformers_finds(num_beams: int, ends_at: int | None) -> None:
    prompt = [5, 17, 23, 42]
    endless = beam_search(TorchModel(llama(), name="tiny"), prompt, num_beams=num_beams, max_new_tokens=16)
    end = None if ends_at is None else endless.beams[0][ends_at]  # a token that is met
    theirs = llama(eos_token_id=end)
    model = TorchModel(theirs, name="tiny")
    assert model.eos_token_ids == frozenset(() if end is None else (end,))
    expected = theirs.generate(
        torch.tensor([prompt]),
        num_beams=num_beams,
        num_return_sequences=num_beams,
        max_new_tokens=16,
        do_sample=False,
        eos_token_id=end,
        pad_token_id=VOCAB_SIZE - 1,
        return_dict_in_generate=True,
        output_scores=True,
    )
    for draft in (None, TorchModel(llama(seed=1), name="draft"), model):
        found = beam_search(model, prompt, num_beams=num_beams, max_new_tokens=16, draft_model=draft)
        assert_same(found, expected.sequences[:, len(prompt) :].tolist(), expected.sequences_scores.tolist())

    assert (min(map(len, found.beams)) < 16) == (end is not None)


def assert_same(found: BeamSearch, sequences: list[list[int]], scores: list[float]) -> None:
    for beam, sequence in zip(found.beams, sequences, strict=True):
        assert list(beam) == sequence[: len(beam)]
        assert all(token_id == VOCAB_SIZE - 1 for token_id in sequence[len(beam) :])
    assert found.scores == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_beams": 0}, "num_beams is 0"),
        ({"num_beams": 2, "max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"num_beams": 2, "num_draft_tokens": -1}, "num_draft_tokens is -1"),
        ({"num_beams": 4, "num_draft_beams": 3}, "num_draft_beams is 3; give at least 4"),
    ],
)
def test_options_out_of_range(options: dict[str, int], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        beam_search(target(), PROMPT, **options)  # type: ignore[arg-type]


def test_a_prompt_that_is_too_long() -> None:
    with pytest.raises(PromptError, match="holds at most 9 tokens"):
        beam_search(target(max_length=9), PROMPT, num_beams=2, max_new_tokens=8)
