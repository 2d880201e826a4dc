"""A benchmark as a table in the terminal and as a self-contained page."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from draftwise import pages, plots
from draftwise.benchmarking.figures import Figures, Foretold, span
from draftwise.benchmarking.pictures import CAPTIONS

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

HEADS = (
    "target", "T", "drafter", "family", "prompts", "tokens/s", "speed-up", "95% interval", "acceptance",
    "tokens/pass", "same output",
)  # fmt: skip


def rows(figures: Sequence[Figures]) -> list[list[pages.Cell]]:
    """The cells under HEADS; the same output is only to be expected at temperature 0."""
    return [
        [
            one.setting.target,
            f"{one.setting.temperature:g}",
            one.setting.label,
            one.family,
            one.prompts,
            f"{one.tokens_per_second:.1f}",
            one.speedup,
            span(one.interval),
            one.acceptance_rate,
            one.tokens_per_pass,
            None if one.setting.temperature else "yes" if one.same_output else "no",
        ]
        for one in figures
    ]


def terminal_table(figures: Sequence[Figures]) -> "Table":
    """The figures for a terminal, without the columns that say the same in every row."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    cells = [[pages.shown(cell) for cell in row] for row in rows(figures)]
    varied = [index for index in range(len(HEADS)) if len({row[index] for row in cells}) > 1]
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for index in varied:
        table.add_column(HEADS[index], justify="left" if index < 4 else "right", overflow="fold")
    for one, row in zip(figures, cells, strict=True):
        is_faster = one.interval is not None and one.interval[0] > 1
        style = "dim" if one.setting.is_plain else "green" if is_faster else None
        table.add_row(*(row[index] for index in varied), style=style)
    return table


def html(
    figures: Sequence[Figures],
    theory: Sequence[Foretold],
    pictures: "Mapping[str, Figure]",
    conditions: Mapping[str, object],
) -> str:
    """The whole report as one page that needs nothing else."""
    foretold: list[Sequence[pages.Cell]] = [
        (
            *(one.setting.target, one.setting.label, f"{one.setting.temperature:g}"),
            *(one.alpha, one.cost, one.by_the_paper, one.with_pass_times, one.measured),
        )
        for one in theory
    ]
    heads = ("target", "drafter", "T", "α", "c", "Theorem 3.8", "with measured pass times", "measured")
    return pages.page(
        "Speculative against plain decoding",
        [
            pages.paragraph(
                "Every prompt was decoded plainly and with each drafter in turns. Speeds are those after the "
                "pass that reads the prompt."
            ),
            *(pages.picture(plots.svg(figure), CAPTIONS[name]) for name, figure in pictures.items()),
            pages.heading("Figures"),
            pages.table(HEADS, rows(figures)),
            pages.heading("Theory and measurement"),
            pages.table(heads, foretold),
            pages.heading("Conditions"),
            pages.table(("", ""), [(name, str(value)) for name, value in conditions.items()]),
        ],
    )
