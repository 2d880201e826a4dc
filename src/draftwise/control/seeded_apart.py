"""Rows with a seed are decided for one by one, the others together."""

from collections.abc import Callable
from collections.abc import Sequence as Rows
from functools import cache

from draftwise.control.base import Controller, Limit, UpTo
from draftwise.sequence import Sequence, nobody
from draftwise.types import Step


class SeededApart:
    """Decides for each row with a seed by a controller that knows no other row, and for the rest by one.

    `together` makes that one when it is first needed; `alone` makes one for each sequence with a seed.
    """

    def __init__(self, together: Callable[[], Controller], alone: Callable[[], Controller]) -> None:
        self._together = cache(together)
        self._alone = alone
        self._of_row: dict[int, Controller] = {}
        self._nobody = nobody()  # whom a controller sees in the rows of others

    def begin(self, row: int, sequence: Sequence) -> None:
        self._of_row[row] = self._alone() if sequence.is_seeded else self._together()
        self._of_row[row].begin(row, sequence)

    def limits(self, rows: Rows[Sequence]) -> list[Limit]:
        limits: list[Limit] = [UpTo(0)] * len(rows)
        for controller in set(self._of_row.values()):
            own = [self._of_row.get(row) is controller for row in range(len(rows))]
            seen = [sequence if is_own else self._nobody for sequence, is_own in zip(rows, own, strict=True)]
            decided = zip(controller.limits(seen), limits, own, strict=True)
            limits = [theirs if is_own else limit for theirs, limit, is_own in decided]
        return limits

    def observe(self, step: Step) -> None:
        self._of_row[step.row].observe(step)
