"""Pictures in one style: a palette that colour-blind readers can tell apart, saved as PNG and SVG."""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from draftwise.errors import OptionError, UnsupportedError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, by what the colours stand for.
BLUE, ORANGE, GREEN, VERMILLION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, YELLOW, GREY, INK = "#CC79A7", "#56B4E9", "#F0E442", "#8C8C8C", "#222222"
CYCLE = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, YELLOW, GREY)
TARGET, DRAFT, OTHER = BLUE, ORANGE, GREY
ACCEPTED, REJECTED, RECOVERED, BONUS = GREEN, VERMILLION, BLUE, PURPLE

STYLE = {
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "white",
    "font.size": 10,
    "grid.alpha": 0.25,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "draftwise",  # the same picture is the same file
}


def axes(width: float = 6.4, height: float = 4.0, columns: int = 1) -> "tuple[Figure, list[Axes]]":
    """An empty picture of `width` by `height` inches, and its axes from left to right.

    Raises UnsupportedError where matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise UnsupportedError(
            "pictures need matplotlib, which is not installed; install draftwise[plots]."
        ) from None
    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, [figure.add_subplot(1, columns, column + 1) for column in range(columns)]


def curves(
    ax: "Axes", x: Sequence[float], series: Mapping[str, Sequence[float]], xlabel: str, ylabel: str
) -> None:
    """Draw labelled lines over a common `x`."""
    for (label, y), colour in zip(series.items(), CYCLE * len(series), strict=False):
        ax.plot(x, y, color=colour, label=label)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.legend()


def grouped_bars(
    ax: "Axes",
    groups: Sequence[str],
    series: Mapping[str, Sequence[float]],
    intervals: Mapping[str, Sequence[tuple[float, float]]] | None = None,
) -> None:
    """Draw one bar for each series in each group; `intervals`: (low, high) of each bar. NaN leaves a gap."""
    width = 0.8 / max(1, len(series))
    for place, ((label, heights), colour) in enumerate(
        zip(series.items(), CYCLE * len(series), strict=False)
    ):
        x = [index + (place - (len(series) - 1) / 2) * width for index in range(len(groups))]
        ax.bar(x, heights, width * 0.92, color=colour, label=label)
        if intervals:
            spans = zip(heights, intervals[label], strict=True)
            reach = [(max(0.0, height - low), max(0.0, high - height)) for height, (low, high) in spans]
            ax.errorbar(
                x,
                heights,
                [list(side) for side in zip(*reach, strict=True)],
                fmt="none",
                ecolor=INK,
                capsize=2,
            )
    rotated = sum(len(group) for group in groups) > 70
    ax.set_xticks(
        range(len(groups)), groups, rotation=25 if rotated else 0, ha="right" if rotated else "center"
    )
    ax.legend(ncols=2 if len(series) > 4 else 1)


def svg(figure: "Figure") -> str:
    """The picture as an `<svg>` element for a page."""
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def save(pictures: "Mapping[str, Figure]", folder: Path) -> None:
    """Write each picture as `folder/name.png` and `.svg`; raises OptionError where that cannot be done."""
    from matplotlib import rc_context

    with _writing(folder), rc_context(STYLE):
        folder.mkdir(parents=True, exist_ok=True)
        for name, figure in pictures.items():
            figure.savefig(folder / f"{name}.png", dpi=150, metadata={"Software": None})
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def refuse_unwritable(folder: Path) -> None:
    """Raise what `save` would, before there is anything to save; leaves nothing behind."""
    with _writing(folder):
        there = next(each for each in (folder, *folder.parents) if each.exists())
        TemporaryFile(dir=there).close()


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OptionError(f"{folder} cannot be written ({error.strerror}); give another folder.") from None
