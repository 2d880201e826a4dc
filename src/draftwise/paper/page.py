"""The page that sets the paper's tables and figures beside what was found here."""

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from draftwise import pages, plots
from draftwise.benchmarking.figures import span
from draftwise.paper import published
from draftwise.paper.closed_forms import table_1, table_4
from draftwise.paper.pictures import COLOURS, Lines, visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def html(pictures: "Mapping[str, Figure]", results: Mapping[str, Any] | None) -> str:
    """The whole page. `results`: those of the experiments, as they are saved; None for theory alone."""
    drawn = {name: plots.svg(figure) for name, figure in pictures.items()}
    parts = [
        pages.paragraph(
            "Leviathan, Kalman and Matias, Fast Inference from Transformers via Speculative Decoding (arXiv "
            "2211.17192): what the formulas give, as printed and as computed here."
        ),
        pages.heading("Table 1: operations and speed, with c = ĉ = 0"),
        pages.table(("α", "γ", "operations", "speed", "printed", "printed"), table_1()),
        pages.heading("Figure 2"),
        pages.picture(drawn["figure-2"], "Expected tokens for one target pass (equation 1)."),
        pages.heading("Figure 3"),
        pages.picture(drawn["figure-3"], "The γ with the largest speed-up by Theorem 3.8."),
        pages.heading("Figure 4"),
        pages.picture(drawn["figure-4"], "Speed and operations, with c = ĉ = 0."),
        pages.heading("Table 4: Theorem 3.8 and the speeds measured in the paper"),
        pages.table(
            ("task", "draft model", "T", "γ", "α", "c", "Theorem 3.8", "printed", "measured"),
            (
                (
                    *(row.task, row.draft_model, row.temperature, row.num_draft_tokens),
                    *(row.alpha, row.cost, expected, row.expected, row.measured),
                )
                for row, expected in table_4()
            ),
        ),
    ]
    return pages.page(
        "The paper's tables and figures", [*parts, *(_experiments(drawn, results) if results else ())]
    )


def _experiments(drawn: Mapping[str, str], results: Mapping[str, Any]) -> list[str]:
    rates = {(row["drafter"], row["temperature"]): row for row in results["acceptance"]}
    drafters, temperatures = (list(dict.fromkeys(names)) for names in zip(*rates, strict=True))
    return [
        pages.heading("Table 3: acceptance rates"),
        pages.paragraph(
            f"Here, the target is {results['target']}. After ±: the standard error. In brackets: the share "
            "of positions with a guess, where that is not all."
        ),
        pages.table(
            ("drafter", *(f"T = {temperature:g}" for temperature in temperatures), "tokens"),
            (
                (
                    drafter,
                    *(_alpha(rates[drafter, temperature]) for temperature in temperatures),
                    " + ".join(str(rates[drafter, temperature]["tokens"]) for temperature in temperatures),
                )
                for drafter in drafters
            ),
        ),
        pages.paragraph("In the paper:"),
        pages.table(
            ("target", "draft model", "T = 0", "T = 1"),
            ((*pair, *alphas) for pair, alphas in published.TABLE_3.items()),
        ),
        pages.heading("Table 4 here: expected and measured speeds"),
        pages.table(
            ("drafter", "T", "γ", "α", "c", "Theorem 3.8", "with pass times", "measured", "95% interval"),
            (
                (
                    *(
                        row["drafter"],
                        f"{row['temperature']:g}",
                        row["num_draft_tokens"],
                        row["alpha"],
                        row["cost"],
                    ),
                    *(row["by_the_paper"], row["with_pass_times"], row["measured"]),
                    span(row["interval"]),
                )
                for row in results["walltime"]
            ),
        ),
        pages.heading("Table 5: lenience"),
        pages.table(
            ("drafter", "T", *(f"l = {lenience:g}" for lenience in published.LENIENCES)),
            (
                (drafter, f"{temperature:g}", *_alphas(rates[drafter, temperature]))
                for temperature in temperatures
                for drafter in drafters
            ),
        ),
        pages.paragraph("In the paper (T5-XXL, EnDe):"),
        pages.table(
            ("draft model", "T", *(f"l = {lenience:g}" for lenience in published.LENIENCES)),
            [
                *((name, "1", *alphas) for name, alphas in published.TABLE_5.items()),
                *((name, "0", *alphas) for name, alphas in published.TABLE_5_GREEDY.items()),
            ],
        ),
        pages.heading("Figure 1"),
        coloured_text(results["figure_1"]),
        pages.heading("Figure 5"),
        pages.picture(drawn["figure-5"], "When each model ran, for the same number of tokens."),
        pages.heading("Conditions"),
        pages.table(("", ""), ((name, str(value)) for name, value in results["conditions"].items())),
    ]


def _alpha(row: Mapping[str, Any]) -> str:
    covered = "" if row["coverage"] == 1 else f" ({row['coverage']:.2f})"
    return _alphas(row)[0] + covered


def _alphas(row: Mapping[str, Any]) -> list[str]:
    """α by lenience, each with its standard error where there is one."""
    alphas = [f"{alpha:.3f}" for alpha in row["alphas"] or ()] or ["-"] * len(published.LENIENCES)
    errors = [f" ± {error:.3f}" for error in row["errors"] or ()] or [""] * len(alphas)
    return [alpha + error for alpha, error in zip(alphas, errors, strict=True)]


def coloured_text(lines: Lines) -> str:
    """Figure 1 as text: a line for each target pass."""
    legend = " ".join(f'<span style="color:{colour}">■ {name}</span>' for name, colour in COLOURS.items())
    body = "\n".join(
        f"{number:3}  " + "".join(_span(piece, origin) for piece, origin in line)
        for number, line in enumerate(lines, start=1)
    )
    return f"<p>{legend}</p>\n<pre>{body}</pre>\n"


def _span(piece: str, origin: str) -> str:
    struck = ";text-decoration:line-through" if origin == "rejected" else ""
    text = escape(visible(piece))
    return f'<span style="color:{COLOURS[origin]}{struck}">{text}</span>'
