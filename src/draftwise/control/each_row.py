"""A controller for each row, so that none learns from another."""

from collections.abc import Callable
from collections.abc import Sequence as Rows
from dataclasses import replace

from draftwise.control.base import Controller, Limit, UpTo
from draftwise.sequence import Sequence
from draftwise.types import Step


class EachRow:
    """Decides for each row as a controller of its own does; `make` makes it for the sequence in the row."""

    def __init__(self, make: Callable[[Sequence], Controller]) -> None:
        self._make = make
        self._controllers: dict[int, Controller] = {}

    def begin(self, row: int, sequence: Sequence) -> None:
        self._controllers[row] = self._make(sequence)

    def limits(self, rows: Rows[Sequence]) -> list[Limit]:
        return [
            UpTo(0) if sequence.finish_reason else self._controllers[row].limits([sequence])[0]
            for row, sequence in enumerate(rows)
        ]

    def observe(self, step: Step) -> None:
        self._controllers[step.row].observe(replace(step, row=0))
