"""What a plan looks like: tables in the terminal, or one JSON object."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from draftwise.planning.check import Checked
    from draftwise.planning.recommend import Candidate, Choice, Plan


SHOWN_LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32)


def show(plans: "Sequence[Plan]", checks: "Sequence[Sequence[Checked]]") -> None:
    """Print the tables of each plan, and which of several precisions is fastest."""
    from rich.console import Console

    console = Console(highlight=False)
    for plan, checked in zip(plans, checks, strict=True):
        _show_one(console, plan, checked)
    if len(plans) > 1:
        fastest = max(plans, key=lambda plan: plan.best.total.tokens_per_second)
        speeds = ", ".join(f"{plan.runs_on}: {_speed(plan.best)}" for plan in plans)
        console.print(f"Fastest precision: {fastest.runs_on} ({speeds} tokens a second).")


def _show_one(console: Any, plan: "Plan", checked: "Sequence[Checked]") -> None:
    from draftwise.planning.recommend import verdict

    tasks = list(plan.plain.by_task)
    tokens = sum(len(text) for text in plan.texts)
    console.print(
        f"{plan.target} on {plan.runs_on}: {len(plan.texts)} prompts, {tokens} tokens, "
        f"{len(tasks)} tasks; timings spread by {plan.profile.spread:.0%}"
    )
    console.print(_overview(plan))
    if plan.candidates:
        console.print(_by_length(plan))
    if plan.candidates and len(tasks) > 1:
        console.print(_by_task(plan, tasks))
    console.print(verdict(plan))
    if checked:
        from draftwise.planning.check import errors

        console.print(_checked(checked))
        typical, largest = errors(checked)
        console.print(
            f"Predicted over measured is off by {typical:.1%} in the median, {largest:.1%} at most."
        )


def _overview(plan: "Plan") -> Any:
    heads = ["drafter", "γ", "α", "tokens/pass", "tokens/s", "speed-up", "operations", "reads"]
    table = _table("the best number of draft tokens (γ) for each drafter", heads)
    candidates = sorted(plan.candidates, key=lambda candidate: -candidate.best.total.tokens_per_second)
    for candidate in candidates:
        best = candidate.best
        table.add_row(
            candidate.drafter,
            str(best.num_draft_tokens),
            _rate(candidate.acceptance.alpha),
            f"{best.total.tokens_per_pass:.2f}",
            _speed(best),
            f"{plan.speedup(best):.2f}",
            f"{best.total.operations(candidate.memory_cost):.2f}",
            f"{best.total.memory_accesses(candidate.memory_cost):.2f}",
            style="bold" if best is plan.best else "",
        )
    if plan.auto:
        table.add_row(
            _name(plan.auto),
            str(plan.auto.num_draft_tokens),
            "–",
            f"{plan.auto.total.tokens_per_pass:.2f}",
            _speed(plan.auto),
            f"{plan.speedup(plan.auto):.2f}",
            "–",
            "–",
            style="bold" if plan.auto is plan.best else "",
        )
    table.add_row("none", "0", "–", "1.00", _speed(plan.plain), "1.00", "1.00", "1.00")
    return table


def _by_length(plan: "Plan") -> Any:
    table = _table("speed-up (tokens/pass) by γ", ["γ"])
    for candidate in plan.candidates:
        table.add_column(candidate.drafter, justify="right")
    for choices in zip(*(candidate.choices for candidate in plan.candidates), strict=True):
        if choices[0].num_draft_tokens not in SHOWN_LENGTHS:
            continue
        cells = (f"{plan.speedup(choice):.2f} ({choice.total.tokens_per_pass:.2f})" for choice in choices)
        table.add_row(str(choices[0].num_draft_tokens), *cells)
    return table


def _by_task(plan: "Plan", tasks: Sequence[str]) -> Any:
    table = _table("speed-up (α) by task, each drafter with its best γ", ["task"])
    for candidate in plan.candidates:
        table.add_column(f"{candidate.drafter}, {candidate.best.num_draft_tokens}", justify="right")
    if plan.auto:
        table.add_column("auto", justify="right")
    for task in tasks:
        cells = [
            f"{plan.speedup(candidate.best, task):.2f} ({_rate(candidate.acceptance.by_task[task])})"
            for candidate in plan.candidates
        ]
        cells += [f"{plan.speedup(plan.auto, task):.2f}"] if plan.auto else []
        table.add_row(task, *cells)
    return table


def _checked(checked: "Sequence[Checked]") -> Any:
    table = _table("predicted against measured", ["drafter, γ", "task", "tokens/pass", "speed-up", "ratio"])
    for one in checked:
        table.add_row(
            f"{_name(one.choice)}, {one.choice.num_draft_tokens}",
            one.task,
            f"{one.predicted.tokens_per_pass:.2f} / {one.measured.tokens_per_pass:.2f}",
            f"{one.predicted_speedup:.2f} / {one.speedup:.2f}",
            f"{one.ratio:.3f}",
        )
    return table


def _name(choice: "Choice") -> str:
    """Auto is of all that have rows of their own, whose names would not fit into one."""
    return "all" if choice.num_draft_tokens == "auto" else choice.drafter


def _table(title: str, columns: Sequence[str]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left")
    return table


def _rate(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.2f}"


def _speed(choice: "Choice") -> str:
    return f"{choice.total.tokens_per_second:.1f}"


def as_object(plans: "Sequence[Plan]", checks: "Sequence[Sequence[Checked]]") -> dict[str, Any]:
    """The object of --json: seconds are wall time, speeds are decode tokens a second."""
    return {
        "plans": [
            {**_plan_object(plan), **({"check": _check_object(checked)} if checked else {})}
            for plan, checked in zip(plans, checks, strict=True)
        ]
    }


def _plan_object(plan: "Plan") -> dict[str, Any]:
    from draftwise.planning.recommend import verdict

    return {
        "target": plan.target,
        "runs_on": plan.runs_on,
        "machine": plan.profile.conditions.machine,
        "prompts": len(plan.texts),
        "tokens": sum(len(text) for text in plan.texts),
        "temperature": plan.texts[0].sampling.temperature,
        "timing_spread": plan.profile.spread,
        "verify_seconds": {context: plan.profile.verify_seconds(context) for context in plan.profile.verify},
        "plain": _choice_object(plan, plan.plain),
        "drafters": [_candidate_object(plan, candidate) for candidate in plan.candidates],
        "auto": {"drafter": plan.auto.drafter, **_choice_object(plan, plan.auto)} if plan.auto else None,
        "best": {"drafter": plan.best.drafter, "num_draft_tokens": plan.best.num_draft_tokens},
        "margin": plan.margin,
        "verdict": verdict(plan),
    }


def _candidate_object(plan: "Plan", candidate: "Candidate") -> dict[str, Any]:
    return {
        "drafter": candidate.drafter,
        "alpha": candidate.acceptance.alpha,
        "alpha_by_task": candidate.acceptance.by_task,
        "alpha_by_position": candidate.acceptance.by_position,
        "memory_cost": candidate.memory_cost,
        "choices": [
            {
                **_choice_object(plan, choice),
                "operations": choice.total.operations(candidate.memory_cost),
                "weights_read": choice.total.memory_accesses(candidate.memory_cost),
            }
            for choice in candidate.choices
        ],
    }


def _choice_object(plan: "Plan", choice: "Choice") -> dict[str, Any]:
    return {
        "num_draft_tokens": choice.num_draft_tokens,
        "tokens_per_pass": choice.total.tokens_per_pass,
        "tokens_per_second": choice.total.tokens_per_second,
        "speedup": plan.speedup(choice),
        "speedup_by_task": {task: plan.speedup(choice, task) for task in choice.by_task},
    }


def _check_object(checked: "Sequence[Checked]") -> dict[str, Any]:
    from draftwise.planning.check import errors

    typical, largest = errors(checked)
    return {
        "median_error": typical,
        "largest_error": largest,
        "choices": [
            {
                "drafter": one.choice.drafter,
                "num_draft_tokens": one.choice.num_draft_tokens,
                "task": one.task,
                "predicted_speedup": one.predicted_speedup,
                "speedup": one.speedup,
                "ratio": one.ratio,
                "predicted_tokens_per_pass": one.predicted.tokens_per_pass,
                "tokens_per_pass": one.measured.tokens_per_pass,
                "predicted_tokens_per_second": one.predicted.tokens_per_second,
                "tokens_per_second": one.measured.tokens_per_second,
                "plain_tokens_per_second": one.plain.tokens_per_second,
            }
            for one in checked
        ],
    }
