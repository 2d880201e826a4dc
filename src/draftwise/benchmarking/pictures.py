"""The pictures of a benchmark."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from draftwise import plots
from draftwise.benchmarking.figures import ALL, Figures, Foretold, acceptance_by_position
from draftwise.benchmarking.records import Run, Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPTIONS = {
    "speedup": "Tokens a second over those of plain decoding of the same prompts, by family; plain decoding "
    "is the line at 1. Whiskers: 95% bootstrap intervals.",
    "acceptance": "Acceptance by position in the draft: the share of tokens accepted there, of those whose "
    "predecessors were.",
    "time": "Where the time of decoding went, after the pass that reads the prompt.",
    "theory": "Measured speed-up against Theorem 3.8, and against the same with the measured time of wider "
    "passes. On the line they agree.",
}


def draw(runs: Sequence[Run], figures: Sequence[Figures], theory: Sequence[Foretold]) -> "dict[str, Figure]":
    """The pictures by name (those of CAPTIONS, without those that there is nothing to show in).

    Raises UnsupportedError where matplotlib is not installed.
    """
    names = _names([one.setting for one in figures])
    pictures = {
        "speedup": _speedups(figures, names),
        "acceptance": _acceptance(runs, names),
        "time": _time(figures, names),
        "theory": _theory(theory, names),
    }
    return {name: figure for name, figure in pictures.items() if figure is not None}


def _names(settings: Sequence[Setting]) -> Mapping[Setting, str]:
    """A label for each setting, no longer than it takes to tell them apart."""
    targets = {setting.target for setting in settings}
    temperatures = {setting.temperature for setting in settings}

    def name(setting: Setting) -> str:
        return (
            (f"{Path(setting.target).name}: " if len(targets) > 1 else "")
            + re.sub("=.*/", " ", setting.label)  # of a model in a folder, its name
            + (f", T = {setting.temperature:g}" if len(temperatures) > 1 else "")
        )

    return {setting: name(setting) for setting in settings}


def _speedups(figures: Sequence[Figures], names: Mapping[Setting, str]) -> "Figure | None":
    known = {(one.setting, one.family): one for one in figures if not one.setting.is_plain}
    settings = list(dict.fromkeys(setting for setting, _ in known))
    families = [name for name in dict.fromkeys(family for _, family in known) if name != ALL]
    families += [ALL] if any(family == ALL for _, family in known) else []
    if not settings:
        return None
    figure, (ax,) = plots.axes(max(6.4, 1.2 + 0.28 * len(settings) * len(families)), 4.2)
    nothing = float("nan")

    def of(setting: Setting, family: str) -> tuple[float, tuple[float, float]]:
        one = known.get((setting, family))
        return (one.speedup if one else nothing), (one and one.interval) or (nothing, nothing)

    bars = {names[setting]: [of(setting, family)[0] for family in families] for setting in settings}
    spans = {names[setting]: [of(setting, family)[1] for family in families] for setting in settings}
    plots.grouped_bars(ax, families, bars, spans)
    ax.axhline(1, color=plots.INK, linewidth=1)
    ax.set(ylabel="times as fast as plain decoding")
    ax.margins(y=0.25)
    return figure


def _acceptance(runs: Sequence[Run], names: Mapping[Setting, str]) -> "Figure | None":
    rates = {name: acceptance_by_position(runs, setting) for setting, name in names.items()}
    rates = {name: of_name for name, of_name in rates.items() if of_name}
    if not rates:
        return None
    figure, (ax,) = plots.axes()
    for (name, of_name), colour in zip(rates.items(), plots.CYCLE * len(rates), strict=False):
        ax.plot(range(1, len(of_name) + 1), of_name, marker="o", markersize=4, color=colour, label=name)
    ax.set(xlabel="position in the draft", ylabel="acceptance rate", ylim=(0, 1.03))
    ax.set_xticks(range(1, max(map(len, rates.values())) + 1))
    ax.legend()
    return figure


def _time(figures: Sequence[Figures], names: Mapping[Setting, str]) -> "Figure":
    overall = {one.setting: one for one in figures}  # that of all families comes last
    figure, (ax,) = plots.axes(6.4, 0.9 + 0.34 * len(overall))
    parts = (("drafting", plots.DRAFT), ("verifying", plots.TARGET), ("other", plots.OTHER))
    places = range(len(overall))
    left = [0.0] * len(overall)
    for index, (part, colour) in enumerate(parts):
        # Milliseconds for a token: what is drawn is also the speed.
        widths = [1e3 * one.shares[index] / one.tokens_per_second for one in overall.values()]
        ax.barh(places, widths, left=left, color=colour, label=part)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    ax.set_yticks(places, [names[setting] for setting in overall])
    ax.invert_yaxis()
    ax.set(xlabel="milliseconds for a token")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 1.0 + 0.5 / (0.9 + 0.34 * len(overall))), ncols=3)
    return figure


def _theory(theory: Sequence[Foretold], names: Mapping[Setting, str]) -> "Figure | None":
    if not theory:
        return None
    figure, (ax,) = plots.axes(6.4, 4.8)
    for one, colour in zip(theory, plots.CYCLE * len(theory), strict=False):
        ax.scatter(one.by_the_paper, one.measured, color=colour, marker="o", label=names[one.setting])
        ax.scatter(one.with_pass_times, one.measured, facecolors="none", edgecolors=colour, marker="s")
    values = [value for one in theory for value in (one.by_the_paper, one.with_pass_times, one.measured)]
    ends = [min(*values, 1.0) * 0.9, max(values) * 1.1]
    ax.plot(ends, ends, color=plots.GREY, linewidth=1)
    ax.set(xlabel="predicted (● Theorem 3.8, □ with measured pass times)", ylabel="measured")
    ax.set(xlim=ends, ylim=ends)
    ax.legend(fontsize=8)
    return figure
