"""The paper's figures: 2 to 4 from the formulas, 1 and 5 from a real run."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from draftwise import plots
from draftwise.benchmarking.records import Pass
from draftwise.paper.closed_forms import ALPHAS, figure_2, figure_3, figure_4

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "accepted": plots.ACCEPTED,
    "rejected": plots.REJECTED,
    "recovered": plots.RECOVERED,
    "bonus": plots.BONUS,
}
ALPHA = "acceptance rate α"
MOST_LINES = 24  # of Figure 1
FONT_SIZE = 8.77  # points: so that a character is a whole number of dots, 11, in a PNG
ADVANCE = 0.602 * FONT_SIZE / 72  # inches: the width of a character of the monospaced font
LINE_HEIGHT = 0.24
Lines = Sequence[Sequence[tuple[str, str]]]  # for each step, pieces of text and what became of them


def of_theory() -> "dict[str, Figure]":
    """Figures 2, 3 and 4; raises UnsupportedError where matplotlib is not installed."""
    pictures = {}
    pictures["figure-2"], (ax,) = plots.axes()
    plots.curves(ax, ALPHAS, figure_2(), ALPHA, "expected tokens for one target pass")
    ax.set_ylim(1, 11)

    pictures["figure-3"], (ax,) = plots.axes()
    plots.curves(ax, ALPHAS, figure_3(), ALPHA, "optimal γ")
    ax.set_ylim(0, 25)
    for line in ax.lines:
        line.set_drawstyle("steps-mid")  # γ is a whole number

    pictures["figure-4"], (left, right) = plots.axes(9.6, 4.0, columns=2)
    speed, operations = figure_4()
    plots.curves(left, ALPHAS, speed, ALPHA, "times as fast")
    plots.curves(right, ALPHAS, operations, ALPHA, "times as many operations")
    return pictures


def figure_1(lines: Lines) -> "Figure":
    """Generated text, a line for each target pass, coloured by what became of each guess."""
    lines = lines[:MOST_LINES]
    width = max(60, *(sum(len(visible(piece)) for piece, _ in line) for line in lines))
    left, right, top, bottom = -4, width + 1, -2, len(lines)  # in characters and lines
    figure, (ax,) = plots.axes(ADVANCE * (right - left), LINE_HEIGHT * (bottom - top))
    figure.set_layout_engine("none")
    ax.set_position((0, 0, 1, 1))
    ax.set(xlim=(left, right), ylim=(bottom, top))
    ax.set_axis_off()
    font: dict[str, Any] = {
        "family": "monospace",
        "fontsize": FONT_SIZE,
        "va": "center",
        "parse_math": False,
    }
    at = 0
    for name, colour in COLOURS.items():
        ax.text(at, -1, f"■ {name}", color=colour, **font)
        at += len(name) + 5
    for row, line in enumerate(lines):
        ax.text(-1, row, str(row + 1), color=plots.GREY, ha="right", **font)
        column = 0
        for piece, origin in line:
            text = visible(piece)
            ax.text(column, row, text, color=COLOURS[origin], **font)
            if origin == "rejected":
                struck = (column + len(text) - len(text.lstrip()), column + len(text.rstrip()))
                ax.plot(struck, (row, row), color=COLOURS[origin], linewidth=0.8)
            column += len(text)
    return figure


def visible(piece: str) -> str:
    """A piece of text on one line, with a dot for what cannot be seen."""
    return "".join(each if each.isprintable() else "·" for each in piece.replace("\n", "↵"))


def figure_5(traces: Mapping[str, Sequence[Pass]]) -> "Figure":
    """When the drafter and the target ran, for the same number of tokens under several γ."""
    figure, (ax,) = plots.axes(9.6, 0.9 + 0.6 * len(traces))
    for row, passes in enumerate(traces.values()):
        _draw_trace(ax, row, passes)
    ax.set_yticks(range(len(traces)), list(traces))
    ax.set(ylim=(len(traces) - 0.4, -0.9), xlabel="milliseconds")
    ax.bar(0, 0, color=plots.DRAFT, label="drafter")
    ax.bar(0, 0, color=plots.TARGET, label="target")
    ax.legend(loc="upper right", ncols=2)
    ax.grid(axis="y", visible=False)
    return figure


def _draw_trace(ax: "Axes", row: int, passes: Sequence[Pass]) -> None:
    now = 0.0
    draft, target = [], []
    for each in passes:
        call = 1e3 * each.draft / max(1, each.drafted)
        draft += [(now + index * call, call) for index in range(each.drafted)]
        now += 1e3 * each.draft
        target.append((now, 1e3 * each.verify))
        now += 1e3 * (each.verify + each.other)
    for spans, colour in ((draft, plots.DRAFT), (target, plots.TARGET)):
        ax.broken_barh(spans, (row - 0.3, 0.6), facecolors=colour, edgecolor="white", linewidth=0.6)
