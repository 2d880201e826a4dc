"""The paper's measurements on models whose distributions are known."""

from collections.abc import Sequence

import numpy as np
import pytest

from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.models.tabular import TabularModel
from draftwise.paper.experiments import (
    GREEDY,
    SAMPLED,
    acceptance,
    lenience,
    run_steps,
    token_by_token,
    write_texts,
)
from draftwise.paper.pictures import COLOURS, figure_1, figure_5
from draftwise.paper.published import LENIENCES
from draftwise.planning.measure import Text
from draftwise.sampling import SamplingParams, adjusted_probs
from tests.planning.simulated import silent

TARGET = TabularModel.random(5, 1, seed=1)
DRAFT = TabularModel.random(5, 1, seed=2)
PROMPTS = [("a", (0, 1)), ("b", (2,)), ("a", (3, 3))]


def texts(sampling: SamplingParams, num_tokens: int = 40) -> list[Text]:
    return write_texts(TARGET, PROMPTS, sampling, num_tokens, 30, silent)


def contexts(text: Text) -> list[Sequence[int]]:
    tokens = (*text.prompt_ids, *text.output_ids)
    return [tokens[:end] for end in range(len(text.prompt_ids), len(tokens))]


def test_the_target_writes_until_it_has_enough() -> None:
    assert [len(text) for text in texts(SAMPLED)] == [30, 30]
    assert [len(text) for text in texts(SAMPLED, 1000)] == [30, 30, 30]  # there are no more prompts
    assert [text.task for text in texts(SAMPLED)] == ["a", "b"]
    assert texts(SAMPLED)[0].output_ids == texts(SAMPLED)[0].output_ids


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_alpha_is_the_mean_overlap(sampling: SamplingParams) -> None:
    written = texts(sampling)
    by_hand = [
        np.minimum(*(adjusted_probs(model.logits_after(tokens), sampling) for model in (TARGET, DRAFT))).sum()
        for text in written
        for tokens in contexts(text)
    ]
    draft, own, lookup = acceptance(
        TARGET,
        {"draft": DraftModel(DRAFT), "own": DraftModel(TARGET), "lookup": PromptLookup()},
        written,
        silent,
    )
    assert (draft.drafter, draft.temperature, draft.tokens, draft.coverage) == (
        "draft",
        sampling.temperature,
        60,
        1.0,
    )
    assert draft.alpha == pytest.approx(np.mean(by_hand))
    assert own.alpha == pytest.approx(1)
    assert 0 < lookup.coverage <= 1


def test_lenience_sampled() -> None:
    written = texts(SAMPLED)
    (row,) = lenience(TARGET, {"draft": DraftModel(DRAFT), "lookup": PromptLookup()}, written, silent)
    for allowed, alpha in zip(LENIENCES, row.alphas, strict=True):
        by_hand = [
            np.minimum(
                adjusted_probs(TARGET.logits_after(tokens), SAMPLED) / allowed,
                adjusted_probs(DRAFT.logits_after(tokens), SAMPLED),
            ).sum()
            for text in written
            for tokens in contexts(text)
        ]
        assert alpha == pytest.approx(np.mean(by_hand))
    assert row.tokens == 60


def test_lenience_greedily_comes_before_the_standardisation() -> None:
    written = texts(GREEDY)
    (row,) = lenience(TARGET, {"draft": DraftModel(DRAFT)}, written, silent)
    for allowed, alpha in zip(LENIENCES, row.alphas, strict=True):
        by_hand = []
        for text in written:
            for tokens in contexts(text):
                p = adjusted_probs(TARGET.logits_after(tokens), SAMPLED)
                by_hand.append(p[DRAFT.logits_after(tokens).argmax()] >= allowed * p.max())
        assert alpha == pytest.approx(np.mean(by_hand))


def test_figure_1_tells_what_became_of_each_guess() -> None:
    steps = run_steps(TARGET, (0, 1), DraftModel(DRAFT), 3, 30, SAMPLED)
    lines = token_by_token(steps, lambda token_ids: f"<{token_ids[0]}>")
    assert {origin for line in lines for _, origin in line} == set(COLOURS)
    for step, line in zip(steps, lines, strict=True):
        origins = [origin for _, origin in line]
        assert origins.count("accepted") == min(step.num_accepted, len(step.emitted))
        rejected = [piece for piece, origin in line if origin == "rejected"]
        if step.num_accepted < len(step.drafted):
            assert rejected == [f"<{step.drafted[step.num_accepted]}>"]
            assert origins[-1] == "recovered"
        else:
            assert not rejected
    figure_1(lines)
    figure_5({})
