from collections.abc import Sequence as Rows

from draftwise.control.base import UpTo
from draftwise.control.seeded_apart import SeededApart
from draftwise.models.tabular import TabularModel
from draftwise.request import Request
from draftwise.sequence import Sequence, nobody
from draftwise.types import Seconds, Step

TARGET = TabularModel.random(3)


class Counting:
    """Allows as many tokens as it sees rows, and one more after each step."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.steps: list[Step] = []

    def begin(self, row: int, sequence: Sequence) -> None:
        self.begun.append(row)

    def limits(self, rows: Rows[Sequence]) -> list[UpTo]:
        seen = sum(not sequence.finish_reason for sequence in rows)
        return [UpTo(seen + len(self.steps))] * len(rows)

    def observe(self, step: Step) -> None:
        self.steps.append(step)


def test_rows_with_a_seed_are_apart_and_the_others_together() -> None:
    made: dict[str, list[Counting]] = {"together": [], "alone": []}

    def make(kind: str) -> Counting:
        made[kind].append(Counting())
        return made[kind][-1]

    controller = SeededApart(lambda: make("together"), lambda: make("alone"))
    rows = [
        *(Request([1], seed=seed).sequence(TARGET) for seed in (None, 7, None, 7)),
        nobody(),
    ]
    for row in (1, 3):
        controller.begin(row, rows[row])
    assert not made["together"]
    assert controller.limits([nobody(), rows[1], nobody(), rows[3], nobody()])[1] == UpTo(1)
    for row in (0, 2):
        controller.begin(row, rows[row])
    assert controller.limits(rows)[:4] == [UpTo(2), UpTo(1), UpTo(2), UpTo(1)]
    done = [Step(row, (), 0, (1,), ("",), 1, Seconds()) for row in range(4)]
    for step in (done[0], done[2], done[3]):
        controller.observe(step)
    assert controller.limits(rows)[:4] == [UpTo(4), UpTo(1), UpTo(4), UpTo(2)]
    (together,) = made["together"]
    assert together.begun == [0, 2]
    assert together.steps == [done[0], done[2]]
    controller.begin(1, rows[1])
    assert len(made["alone"]) == 3
    assert [each.begun for each in made["alone"]] == [[1], [3], [1]]


def test_a_row_that_has_not_begun_drafts_nothing() -> None:
    controller = SeededApart(Counting, Counting)
    assert controller.limits([nobody(), nobody()]) == [UpTo(0)] * 2
