"""α and lenience of models whose distributions are known, and measurements that go on where they stopped."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.none import NoDrafter
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.errors import OptionError
from draftwise.journal import Journal
from draftwise.models.context import ContextState
from draftwise.models.tabular import TabularModel
from draftwise.paper.acceptance import Measured, Overlap, Rates, measure, measure_texts
from draftwise.paper.published import LENIENCES
from draftwise.paper.steps import GREEDY, SAMPLED
from draftwise.planning.measure import traces
from draftwise.planning.text import Text, write_text
from draftwise.sampling import SamplingParams, adjusted_probs
from tests.planning.simulated import silent

DRAFT = TabularModel.random(5, 1, seed=2)
PROMPTS = [(0, 1), (2,), (3, 3), (4,)]
EACH = pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])


class KilledError(Exception):
    """Stands for the process being killed."""


class Reading(TabularModel):
    """Counts the tokens that are read, and dies where it is opened too often."""

    read = 0
    opened = 0
    dies_at = 0

    def open(self, *arguments: Any, **options: Any) -> ContextState:
        self.opened += 1
        if self.opened == self.dies_at:
            raise KilledError
        state = super().open(*arguments, **options)
        forward = state.forward

        def counting(token_ids: Sequence[Sequence[int]], *arguments: Any) -> Any:
            self.read += sum(map(len, token_ids))
            return forward(token_ids, *arguments)

        state.forward = counting  # type: ignore[assignment, method-assign]
        return state


def reading(seed: int = 1) -> Reading:
    return Reading(TabularModel.random(5, 1, seed=seed).table)


TARGET = reading()
DRAFTERS: Mapping[str, Drafter] = {
    "draft": DraftModel(DRAFT),
    "own": DraftModel(TARGET),
    "lookup": PromptLookup(),
    "none": NoDrafter(),
}


def text(sampling: SamplingParams) -> Text:
    return write_text(TARGET, PROMPTS[0], sampling=sampling, max_new_tokens=40)


def distributions(
    written: Text, sampling: SamplingParams, *models: TabularModel
) -> Iterator[tuple[np.ndarray, ...]]:
    """What each model says at each position."""
    tokens = (*written.prompt_ids, *written.output_ids)
    for end in range(len(written.prompt_ids), len(tokens)):
        yield tuple(adjusted_probs(model.logits_after(tokens[:end]), sampling) for model in models)


def measured(
    folder: Path,
    sampling: SamplingParams = SAMPLED,
    num_tokens: int = 40,
    target: TabularModel = TARGET,
    seed: int = 0,
) -> list[Measured]:
    journal = Journal(folder / "texts.jsonl", {"seed": seed})
    journal.rewrite(journal.read())
    return measure_texts(target, DRAFTERS, PROMPTS, sampling, num_tokens, 15, journal, silent)


def test_sampled_overlaps_are_those_of_the_definition() -> None:
    written = text(SAMPLED)
    overlap = measure(TARGET, DRAFTERS, written)["draft"]
    pairs = list(distributions(written, SAMPLED, TARGET, DRAFT))
    assert overlap.guessed == len(pairs) == 40
    expected = [sum(np.minimum(p / lenience, q).sum() for p, q in pairs) for lenience in LENIENCES]
    assert overlap.accepted == pytest.approx(expected, abs=1e-12)


def test_greedily_lenience_comes_before_the_standardisation() -> None:
    written = text(GREEDY)
    overlap = measure(TARGET, DRAFTERS, written)["draft"]
    pairs = list(distributions(written, SAMPLED, TARGET, DRAFT))
    expected = [sum(p[q.argmax()] >= lenience * p.max() for p, q in pairs) for lenience in LENIENCES]
    assert overlap.accepted == pytest.approx(expected, abs=1e-12)
    assert expected[0] < expected[-1]


def test_the_exact_greedy_rule_takes_no_tie() -> None:
    """Two tokens are as likely; the target writes the first, and the draft model guesses the second."""
    target = TabularModel.from_probs(np.full((2, 2), 0.5))
    second = DraftModel(TabularModel.from_probs(np.tile([0.1, 0.9], (2, 1))))
    overlap = measure(target, {"second": second}, write_text(target, [0], max_new_tokens=6))["second"]
    assert overlap == Overlap(6, (0, 6, 6, 6))


@EACH
def test_alpha_is_that_of_a_trace(sampling: SamplingParams) -> None:
    written = text(sampling)
    found = measure(TARGET, DRAFTERS, written)
    for name, (trace,) in traces(TARGET, DRAFTERS, written, [sampling], max_draft_tokens=1).items():
        rates = trace.rates[~np.isnan(trace.rates)]
        assert found[name].guessed == len(rates)
        assert found[name].accepted[0] == pytest.approx(rates.sum(), abs=1e-12)
    assert found["own"].accepted[0] == pytest.approx(40)
    assert 0 < found["lookup"].guessed < 40
    assert found["none"] == Overlap(0, (0,) * len(LENIENCES))


@EACH
def test_each_model_reads_a_text_once(sampling: SamplingParams) -> None:
    target, draft = reading(), reading(2)
    written = text(sampling)
    measure(target, {"draft": DraftModel(draft), "other": DraftModel(DRAFT)}, written)
    assert target.read == draft.read == len(written.prompt_ids) + len(written) - 1


def test_the_target_writes_until_it_has_enough(tmp_path: Path) -> None:
    assert [(each.prompt, each.tokens) for each in measured(tmp_path)] == [(0, 15), (1, 15), (2, 15)]
    assert [each.prompt for each in measured(tmp_path, num_tokens=1000)] == [0, 1, 2, 3]  # there are no more
    assert [each.prompt for each in measured(tmp_path, num_tokens=16)] == [0, 1]


@EACH
@pytest.mark.parametrize("dies_at", [2, 3, 6])
def test_one_that_was_killed_goes_on_where_it_stopped(
    sampling: SamplingParams, dies_at: int, tmp_path: Path
) -> None:
    """The target is opened twice for each text: it writes it, and reads it."""
    whole = measured(tmp_path / "whole", sampling)
    target = reading()
    target.dies_at = dies_at
    with pytest.raises(KilledError):
        measured(tmp_path, sampling, target=target)
    file = tmp_path / "texts.jsonl"
    file.write_text(file.read_text() + '{"temperature": 1.0, "pro')
    rest = reading()
    assert measured(tmp_path, sampling, target=rest) == whole
    assert rest.opened == 2 * (len(whole) - (dies_at - 1) // 2)
    assert file.read_bytes() == (tmp_path / "whole" / "texts.jsonl").read_bytes()


def test_more_tokens_go_on_from_the_texts_at_hand(tmp_path: Path) -> None:
    measured(tmp_path, GREEDY)
    few = measured(tmp_path, num_tokens=20)
    target = reading()
    more = measured(tmp_path, num_tokens=50, target=target)
    assert more[: len(few)] == few
    assert more == measured(tmp_path / "whole", num_tokens=50)
    assert target.opened == 2 * (len(more) - len(few))
    with pytest.raises(OptionError, match="other conditions"):
        measured(tmp_path, seed=1)


def test_rates_over_all_positions(tmp_path: Path) -> None:
    found = measured(tmp_path, SAMPLED, 60)
    texts = [
        write_text(TARGET, prompt, sampling=SAMPLED, max_new_tokens=15, seed=seed)
        for seed, prompt in enumerate(PROMPTS)
    ]
    pairs = [pair for each in texts for pair in distributions(each, SAMPLED, TARGET, DRAFT)]
    rates = Rates.of("draft", found)
    expected = [np.mean([np.minimum(p / lenience, q).sum() for p, q in pairs]) for lenience in LENIENCES]
    assert rates.alphas == pytest.approx(expected, abs=1e-12)
    assert (rates.drafter, rates.temperature, rates.coverage, rates.tokens) == ("draft", 1.0, 1.0, 60)
    assert 0 < Rates.of("lookup", found).coverage < 1
    none = Rates.of("none", found)
    assert (none.alphas, none.errors, none.coverage) == (None, None, 0)


def test_errors_are_the_spread_of_what_other_texts_would_give() -> None:
    """Positions of one text are alike here, so an error that took them as independent would be far off."""
    random = np.random.default_rng(0)

    def alpha_and_error() -> tuple[float, float]:
        sizes = random.integers(5, 60, size=80)
        means = random.beta(2, 2, size=80)
        texts = [
            Measured(1.0, index, int(size), {"draft": Overlap(int(size), (float(size * mean),) * 4)})
            for index, (size, mean) in enumerate(zip(sizes, means, strict=True))
        ]
        rates = Rates.of("draft", texts)
        assert rates.alphas
        assert rates.errors
        return rates.alphas[0], rates.errors[0]

    alphas, errors = zip(*(alpha_and_error() for _ in range(1500)), strict=True)
    assert np.mean(errors) == pytest.approx(np.std(alphas), rel=0.07)
    assert Rates.of("draft", [Measured(0.0, 0, 4, {"draft": Overlap(2, (1.0,) * 4)})]).errors is None


def test_a_line_holds_all_of_a_text(tmp_path: Path) -> None:
    (first, *_) = measured(tmp_path)
    assert Measured.from_object(json.loads(json.dumps(asdict(first)))) == first
