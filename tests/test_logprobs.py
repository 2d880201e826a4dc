"""What is reported of a token is what plain decoding reports in its place."""

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwise import logprobs as module
from draftwise.decoding import generate
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.tree import TreeDraftModel
from draftwise.errors import OptionError, PromptError
from draftwise.logprobs import Distribution, Logprobs, log_softmax
from draftwise.models.tabular import TabularModel
from draftwise.models.torch import TorchModel
from draftwise.sampling import SamplingParams, adjusted_probs, likeliest
from draftwise.scoring import score
from draftwise.types import Draft, FinishReason, Generation, TokenLogprob
from tests.drafters.case import Case
from tests.drafters.cases import ANYWHERE, TARGET
from tests.fakes import GuessingDrafter, PieceTokenizer, RowDrafter
from tests.models import tiny
from tests.models.tiny import one_thread

__all__ = ["one_thread"]

PROMPT = [1, 2, 3]
SAMPLED = SamplingParams(temperature=0.8, top_k=3, presence_penalty=0.5)
DISTRIBUTIONS: tuple[Distribution, ...] = ("raw", "adjusted")
either = pytest.mark.parametrize("distribution", DISTRIBUTIONS)


def plainly(generation: Generation, **options: Any) -> list[TokenLogprob]:
    """The reports of plain decoding, made to emit the same tokens: each from a step of its own."""
    reports = []
    text = list(PROMPT)
    for token_id in generation.token_ids:
        one = generate(TARGET, text, max_new_tokens=1, seed=0, **options)
        (report,) = one.logprobs or ()
        by_token = {report.token_id: report.logprob, **dict(report.top)}
        reports.append(TokenLogprob(token_id, by_token[token_id], report.top, report.distribution))
        text.append(token_id)
    return reports


@either
@pytest.mark.parametrize("case", ANYWHERE, ids=lambda case: case.name)
def test_every_drafter_leaves_the_reports_as_they_are(case: Case, distribution: Distribution) -> None:
    """Without controls, as those know in plain steps of one token only some of the text."""
    options: dict[str, Any] = {
        "sampling": SamplingParams(temperature=0.8, top_k=3),
        "logprobs": 4,
        "logprobs_of": distribution,
    }
    result = generate(
        TARGET, PROMPT, drafter=case.make(TARGET), num_draft_tokens=6, max_new_tokens=25, seed=1, **options
    )
    assert list(result.logprobs or ()) == plainly(result, **options)


@either
@pytest.mark.parametrize("drafter", [DraftModel(TARGET), TreeDraftModel(TARGET)], ids=["chain", "tree"])
def test_greedy_reports_are_those_of_plain_decoding(drafter: Any, distribution: Distribution) -> None:
    def run(using: Any) -> Generation:
        sampling = SamplingParams(repetition_penalty=1.3)
        options: dict[str, Any] = {"sampling": sampling, "logprobs": 3, "logprobs_of": distribution}
        return generate(TARGET, PROMPT, drafter=using, num_draft_tokens=5, max_new_tokens=40, **options)

    assert run(drafter).logprobs == run(None).logprobs
    assert run(drafter).target_passes < 40


def test_the_numbers_are_those_of_the_distribution() -> None:
    for distribution in DISTRIBUTIONS:
        result = generate(
            TARGET,
            PROMPT,
            drafter=DraftModel(TabularModel.random(4, 2, seed=2)),
            num_draft_tokens=3,
            sampling=SamplingParams(temperature=0.7, top_k=2),
            max_new_tokens=30,
            seed=2,
            logprobs=4,
            logprobs_of=distribution,
        )
        text = list(PROMPT)
        for token_id, report in zip(result.token_ids, result.logprobs or (), strict=True):
            logits = TARGET.logits_after(text)
            probs = (
                adjusted_probs(logits, SamplingParams(temperature=0.7, top_k=2))
                if distribution == "adjusted"
                else np.exp(logits) / np.exp(logits).sum()
            )
            assert report.distribution == distribution
            assert np.exp(report.logprob) == pytest.approx(probs[report.token_id], rel=1e-12)
            assert report.token_id == token_id
            assert len(report.top) == np.count_nonzero(probs)
            assert [token for token, _ in report.top] == sorted(
                np.flatnonzero(probs), key=lambda token: -probs[token]
            )
            text.append(token_id)


@either
def test_score_is_what_generation_reported(distribution: Distribution) -> None:
    drafter = DraftModel(TabularModel.random(4, 2, seed=2))
    options: dict[str, Any] = {"sampling": SAMPLED, "logprobs": 2, "logprobs_of": distribution}
    options["seed"] = 3
    result = generate(TARGET, PROMPT, drafter=drafter, num_draft_tokens=3, max_new_tokens=150, **options)
    scored = score(
        TARGET, PROMPT, result.token_ids, sampling=SAMPLED if distribution == "adjusted" else None, num_top=2
    )
    assert scored.tokens == result.logprobs
    assert scored.token_ids == result.token_ids
    assert scored.logprob == pytest.approx(sum(token.logprob for token in result.logprobs or ()))


def test_score_of_what_never_would_be_sampled() -> None:
    text = list(PROMPT)
    best = int(TARGET.logits_after(text).argmax())
    others = [token for token in range(4) if token != best]
    assert score(TARGET, PROMPT, [best], sampling=SamplingParams()).logprob == 0
    assert score(TARGET, PROMPT, others[:1], sampling=SamplingParams()).logprob == -np.inf
    assert np.exp([score(TARGET, PROMPT, [token]).logprob for token in range(4)]).sum() == pytest.approx(1)


LETTERS = PieceTokenizer([bytes([letter]) for letter in b"abcdefgh"])
COUNTING = TabularModel(3 * np.eye(8)[(np.arange(8) + 1) % 8], tokenizer=LETTERS)


class Branching(RowDrafter):
    """The four letters to come, and beside each a wrong one."""

    def draft(self, context: Any, *args: Any) -> Draft:
        token_ids = [(context[-1] + n, (context[-1] + n + 3) % 8) for n in range(1, 5)]
        parents = [(-1 if n == 0 else 2 * n - 2,) * 2 for n in range(4)]
        return Draft(tuple(sum(token_ids, ())), None, tuple(sum(parents, ())))


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_a_stop_string_cuts_tokens_and_reports_alike(at: int, shape: str) -> None:
    """At each position of a whole accepted draft of four, and at the bonus token after it."""
    chain = GuessingDrafter(lambda context: [context[-1] + n for n in range(1, 5)])
    result = generate(
        COUNTING,
        "a",
        drafter=Branching() if shape == "tree" else chain,
        num_draft_tokens=8,
        stop="bcdefg"[at],
        logprobs=1,
    )
    (only,) = result.steps
    assert result.finish_reason == FinishReason.STOP_STRING
    assert result.token_ids == tuple(range(1, at + 2))
    expected = 3 - np.log(np.exp(3) + 7)
    for token_id, report in zip(only.emitted, only.logprobs or (), strict=True):
        assert report.token_id == token_id == report.top[0][0]
        assert report.logprob == report.top[0][1] == pytest.approx(expected, rel=1e-12)
    assert result.logprobs == only.logprobs


@either
def test_a_transformer_reports_the_same_up_to_rounding(distribution: Distribution) -> None:
    target, drafter = TorchModel(tiny.llama()), TreeDraftModel(TorchModel(tiny.llama(seed=1)))
    sampling = SamplingParams(temperature=0.9, top_p=0.95)
    options: dict[str, Any] = {"sampling": sampling, "logprobs": 3, "logprobs_of": distribution}
    result = generate(
        target, PROMPT, drafter=drafter, num_draft_tokens=8, max_new_tokens=30, seed=1, **options
    )
    scored = score(
        target, PROMPT, result.token_ids, sampling=sampling if distribution == "adjusted" else None, num_top=3
    )
    for one, other in zip(result.logprobs or (), scored.tokens, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
        assert [logprob for _, logprob in one.top] == pytest.approx(
            [logprob for _, logprob in other.top], abs=1e-4
        )


def test_nothing_is_computed_that_nobody_asked_for() -> None:
    with patch.object(module, "log_softmax", side_effect=AssertionError):
        assert generate(TARGET, PROMPT, max_new_tokens=5).logprobs is None
    (token,) = generate(TARGET, PROMPT, max_new_tokens=1, logprobs=0).logprobs or ()
    assert token.top == ()


@given(
    st.lists(st.integers(-3, 3).map(float) | st.just(-np.inf), min_size=1, max_size=200), st.integers(0, 20)
)
def test_the_likeliest_are_those_of_a_sort(values: list[float], count: int) -> None:
    ranked = sorted((-value, index) for index, value in enumerate(values) if value > -np.inf)
    assert likeliest(np.array(values), count) == [index for _, index in ranked[:count]]


def test_logprobs_of_extreme_logits() -> None:
    logits = np.array([1e4, 0.0, -np.inf, 1e4], np.float32)
    assert log_softmax(logits).dtype == np.float32
    np.testing.assert_allclose(log_softmax(logits)[[0, 3]], -np.log(2), rtol=1e-6)
    assert log_softmax(logits)[2] == -np.inf


def test_impossible_options_are_refused() -> None:
    with pytest.raises(OptionError, match="logprobs is -1"):
        generate(TARGET, PROMPT, logprobs=-1)
    with pytest.raises(OptionError, match="logprobs_of is 'both'; give raw or adjusted"):
        Logprobs(1, "both")  # type: ignore[arg-type]
    with pytest.raises(PromptError, match="the continuation is empty"):
        score(TARGET, PROMPT, [])
    with pytest.raises(PromptError, match="the continuation is text and the prompt is not"):
        score(COUNTING, PROMPT, "ab")
    short = TabularModel(TARGET.table, max_length=4, name="short")
    with pytest.raises(PromptError, match="have 6 tokens, but short holds at most 4"):
        score(short, PROMPT, [1, 2, 3])


class Pairs(PieceTokenizer):
    """Reads "ab" as one token."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return super().encode(text) if "ab" not in text else [0, *super().encode(text.replace("ab", ""))]


def test_text_is_read_together_with_the_prompt() -> None:
    assert score(COUNTING, "ab", "cd").token_ids == (2, 3)
    pairs = TabularModel(COUNTING.table, tokenizer=Pairs([b"ab", b"a", b"b", b"c", b"d", b"e", b"f", b"g"]))
    with pytest.raises(PromptError, match="no token ends where the prompt does"):
        score(pairs, "a", "b")
    assert score(pairs, "ab", "c").token_ids == (3,)
