"""A plan as a picture: the speed-up by draft tokens, and the measurements that it comes from."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from draftwise import plots
from draftwise.planning.check import Checked
from draftwise.planning.predict import Prediction
from draftwise.planning.recommend import Candidate, Choice, Plan
from draftwise.plots import CYCLE, GREY, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(plan: Plan, checked: Sequence[Checked]) -> "Figure":
    """Three panels: speed-up by γ, acceptance by position, T(n); raises what `plots.axes` raises."""
    figure, (speed, acceptance, passes) = plots.axes(13.5, 4.4, columns=3)
    figure.suptitle(f"{plan.target}, {plan.runs_on}")
    _speedups(speed, plan, checked)
    _acceptance(acceptance, plan)
    _passes(passes, plan)
    return figure


MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def _looks(plan: Plan) -> Iterator[tuple[Candidate, dict[str, Any]]]:
    for index, candidate in enumerate(plan.candidates):
        look = {"color": CYCLE[index % len(CYCLE)], "marker": MARKERS[index % len(MARKERS)]}
        yield candidate, {**look, "label": candidate.drafter}


def _speedups(axes: "Axes", plan: Plan, checked: Sequence[Checked]) -> None:
    axes.set_title("predicted speed-up by draft tokens", loc="left")
    axes.set_xlabel("draft tokens (γ)")
    axes.set_ylabel("speed-up over plain decoding")
    _whole_numbers(axes)
    axes.axhline(1.0, color=GREY, linewidth=1.2, linestyle="--", label="plain decoding")
    leading = next((choice for choice in plan.ranking if choice.num_draft_tokens not in (0, "auto")), None)
    for candidate, look in _looks(plan):
        choices = [plan.plain, *candidate.choices]
        lengths = [_place(plan, choice.num_draft_tokens) for choice in choices]
        axes.plot(lengths, [plan.speedup(choice) for choice in choices], markersize=4, **look)
        best = candidate.best
        axes.plot(
            _place(plan, best.num_draft_tokens),
            plan.speedup(best),
            marker=look["marker"],
            color=look["color"],
            markersize=11,
            linestyle="none",
        )
        axes.annotate(
            f"{plan.speedup(best):.2f}",
            (_place(plan, best.num_draft_tokens), plan.speedup(best)),
            xytext=(0, 10 if best is leading else -18),
            textcoords="offset points",
            ha="center",
            color=look["color"],
        )
    if plan.auto:
        _auto(axes, plan, plan.auto)
    measured = _measured(checked)
    if measured:
        axes.plot(
            [_place(plan, length) for length in measured],
            list(measured.values()),
            linestyle="none",
            marker="x",
            markersize=10,
            markeredgewidth=2,
            color=INK,
            label="measured",
        )
    axes.set_ylim(0, 1.15 * max(plan.speedup(plan.best), *measured.values(), 1.0))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, frameon=False)


def _auto(axes: "Axes", plan: Plan, auto: Choice) -> None:
    """A place of its own, beyond the last γ: it has no constant one."""
    place, speedup = _place(plan, auto.num_draft_tokens), plan.speedup(auto)
    axes.plot(
        place,
        speedup,
        linestyle="none",
        marker="o",
        markersize=13,
        markerfacecolor="none",
        color=INK,
        label="auto",
    )
    axes.annotate(f"{speedup:.2f}", (place, speedup), xytext=(0, 12), textcoords="offset points", ha="center")
    lengths = [length for length in axes.get_xticks() if 0 <= length <= place - 2]
    axes.set_xticks([*lengths, place], [*(f"{length:g}" for length in lengths), "auto"])


def _whole_numbers(axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _place(plan: Plan, num_draft_tokens: int | Literal["auto"]) -> int:
    """Where a choice stands on the axis of γ."""
    if num_draft_tokens != "auto":
        return num_draft_tokens
    return 2 + max(len(each.choices) for each in plan.candidates)


def _acceptance(axes: "Axes", plan: Plan) -> None:
    axes.set_title("acceptance by position in the draft", loc="left")
    axes.set_xlabel("position in the draft")
    axes.set_ylabel("accepted, if those before were")
    axes.set_ylim(-0.02, 1.05)
    for candidate, look in _looks(plan):
        rates = candidate.acceptance.by_position
        axes.plot(range(1, len(rates) + 1), rates, markersize=4, **look)
    _whole_numbers(axes)


def _passes(axes: "Axes", plan: Plan) -> None:
    axes.set_title("verification curve T(n)", loc="left")
    axes.set_xlabel("positions in a target pass (n)")
    _whole_numbers(axes)
    axes.set_ylabel("milliseconds")
    for index, (context, points) in enumerate(plan.profile.verify.items()):
        widths = list(points)
        axes.plot(
            widths,
            [1e3 * seconds for seconds in plan.profile.verify_seconds(context).values()],
            color=CYCLE[index % len(CYCLE)],
            marker=".",
            label=f"after {context} tokens",
        )
        axes.fill_between(
            widths,
            [1e3 * points[width].lower_quartile for width in widths],
            [1e3 * points[width].upper_quartile for width in widths],
            color=CYCLE[index % len(CYCLE)],
            alpha=0.2,
            linewidth=0,
        )
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


def _measured(checked: Sequence[Checked]) -> dict[int | Literal["auto"], float]:
    """Measured speed-up over all tasks, by draft tokens of the choices that were run."""
    totals: dict[int | Literal["auto"], tuple[Prediction, Prediction]] = {}
    for one in checked:
        fast, slow = totals.get(one.choice.num_draft_tokens, (Prediction(), Prediction()))
        totals[one.choice.num_draft_tokens] = (fast + one.measured, slow + one.plain)
    return {length: fast.speedup(slow) for length, (fast, slow) in totals.items()}
