"""Progress of the slow things: downloads, conversions, loading."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Called with the name of a stage and the fraction of it that is done, 0 to 1.
Progress = Callable[[str, float], None]


@contextmanager
def shown(progress: Progress | None) -> Iterator[Progress]:
    """The given progress, or, for None, a bar for each stage on standard error where that is a terminal."""
    if progress is not None:
        yield progress
    elif sys.stderr.isatty():
        with _bars() as bars:
            yield bars
    else:
        yield _silent


def _silent(stage: str, fraction: float) -> None:
    pass


@contextmanager
def _bars() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, int] = {}

        def report(stage: str, fraction: float) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=1.0)
            bars.update(tasks[stage], completed=fraction)  # type: ignore[arg-type]

        yield report
