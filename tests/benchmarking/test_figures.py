"""Figures from made-up runs, whose speeds, acceptance and costs are known."""

import numpy as np
import pytest

from draftwise import theory
from draftwise.benchmarking.figures import (
    ALL,
    acceptance_by_position,
    all_figures,
    bootstrap_interval,
    foretold,
    span,
)
from draftwise.benchmarking.pictures import CAPTIONS, draw
from draftwise.benchmarking.records import PLAIN, Pass, Run, Setting
from draftwise.benchmarking.report import HEADS, html, terminal_table
from draftwise.types import Seconds, Step

PROMPT = Pass(20, 0, 0, 0, 0, 1, 0.0, 9.0, 0.0)  # reading the prompt is not part of the speed
COST, WIDE = 0.1, 1.5  # of a draft token and of a pass over three positions, in passes over one


def plain(prompt: int, family: str = "a", slow: float = 1.0, round: int = 0) -> Run:
    passes = (PROMPT, *(Pass(1, 0, 0, 0, 0, 1, 0.0, slow, 0.0) for _ in range(12)))
    return Run(Setting("t", PLAIN, None, 0.0), family, prompt, round, "same", passes)


def drafted(prompt: int, family: str = "a", slow: float = 1.0, output: str = "same") -> Run:
    """Accepts 2, 1, 0, 2, 1 of two: 11 tokens in 5 passes, 6 of 9 verified."""
    passes = (
        PROMPT,
        *(Pass(3, 2, 2, min(n + 1, 2), n, n + 1, 2 * COST * slow, WIDE * slow, 0.0) for n in (2, 1, 0, 2, 1)),
    )
    return Run(Setting("t", "draft", 2, 0.0), family, prompt, 0, output, passes)


RUNS = [plain(0), drafted(0), plain(1, "b"), drafted(1, "b", slow=2.0)]


def test_speeds_are_those_beside_plain() -> None:
    figures = {(one.setting.drafter, one.family): one for one in all_figures(RUNS)}
    assert list(figures) == [(drafter, family) for drafter in (PLAIN, "draft") for family in ("a", "b", ALL)]
    seconds = 5 * (WIDE + 2 * COST)
    fast = figures["draft", "a"]
    assert fast.tokens_per_second == pytest.approx(11 / seconds)
    assert fast.speedup == pytest.approx(11 / seconds)  # plain takes a second for a token
    assert figures["draft", "b"].speedup == pytest.approx(11 / seconds / 2)
    assert figures["draft", ALL].speedup == pytest.approx(22 / (3 * seconds))
    assert figures["draft", ALL].interval == pytest.approx((11 / seconds / 2, 11 / seconds))
    assert figures[PLAIN, ALL].speedup == 1
    assert figures[PLAIN, ALL].interval == (1, 1)
    assert fast.acceptance_rate == pytest.approx(6 / 9)
    assert fast.tokens_per_pass == pytest.approx(11 / 5)
    assert fast.shares == pytest.approx((2 * COST / (WIDE + 2 * COST), WIDE / (WIDE + 2 * COST), 0))
    assert figures[PLAIN, "a"].acceptance_rate is None


def test_another_output_is_noticed() -> None:
    assert all(one.same_output for one in all_figures(RUNS))
    other = all_figures([plain(0), drafted(0, output="other")])
    assert [one.same_output for one in other] == [True, False]


def test_acceptance_by_position() -> None:
    rates = acceptance_by_position(RUNS, Setting("t", "draft", 2, 0.0))
    assert rates == pytest.approx([4 / 5, 2 / 4])


def test_one_prompt_is_resampled_by_rounds() -> None:
    slow = plain(0, slow=2.0, round=1)
    second = Run(drafted(0).setting, "a", 0, 1, "same", drafted(0).passes)
    interval = all_figures([plain(0), drafted(0), slow, second])[-1].interval
    assert interval
    assert interval[0] < interval[1]
    assert span((0.951, 1.5)) == "0.95 to 1.50"


def test_one_run_has_no_interval() -> None:
    assert [one.interval for one in all_figures([plain(0), drafted(0)])] == [None, None]
    assert span(None) is None


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(300):
        units = np.column_stack([rng.normal(2, 0.5, 40), rng.normal(1, 0.2, 40)])
        low, high = bootstrap_interval(units, lambda sums: sums[..., 0] / sums[..., 1], resamples=400)
        covered += low <= 2 <= high
    assert 0.89 < covered / 300 < 0.99


def test_theory_from_the_same_runs() -> None:
    (one,) = foretold(RUNS[:2], all_figures(RUNS[:2]))
    assert (one.alpha, one.cost) == pytest.approx((6 / 9, COST))
    assert one.by_the_paper == pytest.approx(theory.speedup(6 / 9, 2, COST))
    assert one.with_pass_times == pytest.approx((1 + 4 / 5 + 4 / 5 * 2 / 4) / (WIDE + 2 * COST))
    assert one.measured == pytest.approx(11 / 5 / (WIDE + 2 * COST))


def test_theory_where_no_draft_is_accepted() -> None:
    hopeless = Run(
        drafted(0).setting, "a", 0, 0, "same", (PROMPT, *(Pass(3, 2, 2, 1, 0, 1, 0.2, 1.5, 0.0),) * 3)
    )
    (one,) = foretold([plain(0), hopeless], all_figures([plain(0), hopeless]))
    assert (one.alpha, one.by_the_paper) == (0, pytest.approx(1 / 1.2))
    assert one.with_pass_times == one.measured == pytest.approx(1 / 1.7)


def test_runs_too_short_to_have_a_speed_are_left_out() -> None:
    short = Run(plain(0).setting, "a", 0, 0, "same", (PROMPT,))
    assert all_figures([short, drafted(0)]) == []


def test_the_report_is_one_page() -> None:
    figures = all_figures(RUNS)
    expected = foretold(RUNS, figures)
    pictures = draw(RUNS, figures, expected)
    assert pictures.keys() == CAPTIONS.keys()
    page = html(figures, expected, pictures, {"machine": "abacus & co"})
    assert page.count("<svg") == len(CAPTIONS)
    assert "abacus &amp; co" in page
    assert all(f"<th>{head}</th>" in page for head in HEADS)
    assert not any(outside in page for outside in ("<script", "<link", "<img", 'href="http'))
    assert terminal_table(figures).row_count == len(figures)


def test_nothing_but_plain_decoding_has_no_speedup_to_show() -> None:
    runs = [plain(0)]
    figures = all_figures(runs)
    assert draw(runs, figures, foretold(runs, figures)).keys() == {"time"}


def test_trees_are_counted_by_depth() -> None:
    """Six guesses two deep: where no sibling was right, one position was looked at and not six."""
    tree = (-1, -1, 0, 0, 1, 1)

    def taken(path: tuple[int, ...]) -> Pass:
        drafted, emitted = (1, 2, 3, 4, 5, 6), tuple(range(len(path) + 1))
        pieces = ("",) * len(emitted)
        seconds = Seconds(0.1, 1.0)
        return Pass.of(Step(0, drafted, len(path), emitted, pieces, 7, seconds, parents=tree, path=path))

    passes = tuple(map(taken, [(), (1,), (1, 4), (0, 2)]))
    assert [(each.depth, each.verified) for each in passes] == [(2, 1), (2, 2), (2, 2), (2, 2)]
    run = Run(Setting("t", "tree", 6, 0.0), "a", 0, 0, "same", (PROMPT, *passes))
    found = {one.setting.drafter: one for one in all_figures([plain(0), run])}["tree"]
    assert found.acceptance_rate == pytest.approx(5 / 7)
    assert found.tokens_per_pass == pytest.approx(9 / 4)
    assert acceptance_by_position([run], run.setting) == pytest.approx([3 / 4, 2 / 3])
    assert foretold([plain(0), run], all_figures([plain(0), run])) == []
