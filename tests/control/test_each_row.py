from collections.abc import Sequence as Rows
from dataclasses import replace

from draftwise.control.base import UpTo
from draftwise.control.cost import CostModel
from draftwise.control.each_row import EachRow
from draftwise.models.tabular import TabularModel
from draftwise.request import Request
from draftwise.sequence import Sequence, nobody
from draftwise.types import Seconds, Step

TARGET = TabularModel.random(3)


class Counting:
    """Allows one token more after each step that it sees."""

    def __init__(self) -> None:
        self.seen: list[Step] = []

    def begin(self, row: int, sequence: Sequence) -> None:
        raise AssertionError("a new sequence has a controller of its own")

    def limits(self, rows: Rows[Sequence]) -> list[UpTo]:
        (_,) = rows
        return [UpTo(len(self.seen))]

    def observe(self, step: Step) -> None:
        self.seen.append(step)


def test_each_row_has_a_controller_of_its_own() -> None:
    made: list[Counting] = []

    def make(sequence: Sequence) -> Counting:
        made.append(Counting())
        return made[-1]

    controller = EachRow(make)
    rows = [Request([1]).sequence(TARGET), nobody(), Request([2]).sequence(TARGET)]
    for row in (0, 2):
        controller.begin(row, rows[row])
    assert controller.limits(rows) == [UpTo(0)] * 3
    done = Step(2, (), 0, (1,), ("",), 1, Seconds())
    controller.observe(done)
    controller.observe(done)
    assert controller.limits(rows) == [UpTo(0), UpTo(0), UpTo(2)]
    assert made[1].seen == [replace(done, row=0)] * 2
    controller.begin(2, rows[2])
    assert controller.limits(rows) == [UpTo(0)] * 3
    assert len(made) == 3


def test_a_row_pays_its_share_of_a_pass_that_all_widen() -> None:
    """A pass costs 8 and 1 for each position: of four rows each pays 2 and 1 for each of its own."""

    def verify(context_length: int) -> dict[int, float]:
        return {width: 8.0 + width for width in (1, 4, 32)}

    def draft(context_length: int) -> dict[int, float]:
        return {1: 3.0, 32: 96.0}

    alone = CostModel(verify, [draft], constant=True)
    together = CostModel(verify, [draft], constant=True, num_rows=4)
    assert alone.verify(100)[1:4] == [9.0, 10.0, 11.0]
    assert together.verify(100)[1:4] == [3.0, 4.0, 5.0]
    assert alone.draft(0, 100)[2] == 6.0
    assert together.draft(0, 100)[2] == 2.0
