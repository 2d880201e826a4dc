from itertools import pairwise, product

import pytest

from draftwise.models.torch.feed import PASS_COST, runs


def cost(widths: tuple[int, ...], covered: list[slice]) -> int:
    return sum(PASS_COST + len(widths[rows]) * max(widths[rows]) for rows in covered)


@pytest.mark.parametrize("widths", list(product((0, 1, 30, 200), repeat=4)))
def test_rows_pass_together_where_that_costs_least(widths: tuple[int, ...]) -> None:
    chosen = list(runs(widths))
    assert all(one.stop <= other.start for one, other in pairwise(chosen))
    covered = {row for rows in chosen for row in range(rows.start, rows.stop)}
    assert covered >= {row for row, width in enumerate(widths) if width}
    ways = [
        [slice(start, stop) for start, stop in pairwise((0, *cuts, 4)) if any(widths[start:stop])]
        for cuts in ((), (1,), (2,), (3,), (1, 2), (1, 3), (2, 3), (1, 2, 3))
    ]
    assert cost(widths, chosen) <= min(cost(widths, way) for way in ways)


def test_a_prompt_is_not_padded_to_all_rows_and_single_tokens_pass_together() -> None:
    assert list(runs([1, 5, 400, 1, 0, 0])) == [slice(0, 2), slice(2, 3), slice(3, 4)]
    assert list(runs([1, 5, 1, 3])) == [slice(0, 4)]
    assert list(runs([0, 0])) == []
