"""The paper's printed digits."""

import pytest

from draftwise.paper import published
from draftwise.paper.closed_forms import ALPHAS, figure_2, figure_3, figure_4, table_1, table_4


def test_table_1_to_the_printed_digits() -> None:
    for _, _, operations, speed, printed_operations, printed_speed in table_1():
        assert (f"{operations:.2f}", f"{speed:.2f}") == (f"{printed_operations:.2f}", f"{printed_speed:.2f}")


def test_table_4_within_what_rounding_explains() -> None:
    rows = table_4()
    assert len(rows) == 12
    for row, expected in rows:
        assert expected == pytest.approx(row.expected, abs=published.TABLE_4_ALLOWANCE)


def at(alpha: float) -> int:
    return ALPHAS.index(alpha)


def test_figure_2() -> None:
    curves = figure_2()
    assert curves["γ = 3"][at(0.8)] == pytest.approx(1 + 0.8 + 0.64 + 0.512)
    assert curves["γ = ∞"][at(0.9)] == pytest.approx(10)
    assert all(series[0] == 1 for series in curves.values())


@pytest.mark.parametrize(
    ("cost", "optima"),
    [(0.01, (5, 7, 9, 14, 24)), (0.02, (4, 6, 8, 11, 19)), (0.05, (3, 4, 6, 8, 13)), (0.1, (2, 3, 4, 6, 10))],
)
def test_figure_3(cost: float, optima: tuple[int, ...]) -> None:
    series = figure_3()[f"c = {cost:g}"]
    assert tuple(series[at(alpha)] for alpha in (0.5, 0.6, 0.7, 0.8, 0.9)) == optima


def test_figure_4() -> None:
    speed, operations = figure_4()
    assert speed["γ = 5"][at(0.8)] == pytest.approx(3.69, abs=0.005)
    assert operations["γ = 10"][at(0.9)] == pytest.approx(1.60, abs=0.005)
    assert operations["γ = 3"][0] == 4
