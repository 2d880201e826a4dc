"""What the paper computes: Tables 1 and 4, Figures 2, 3 and 4, from the formulas of `draftwise.theory`."""

from collections.abc import Sequence

from draftwise import theory
from draftwise.paper import published

ALPHAS = tuple(round(0.01 * step, 2) for step in range(100))
Curves = dict[str, list[float]]


def table_1() -> list[tuple[float, int, float, float, float, float]]:
    """Rows of α, γ, operations and speed by the formula, and both as printed."""
    return [
        (alpha, gamma, theory.operations(alpha, gamma), theory.speedup(alpha, gamma), *printed)
        for (alpha, gamma), printed in published.TABLE_1.items()
    ]


def table_4() -> list[tuple[published.Walltime, float]]:
    """Each printed row with Theorem 3.8 at its γ, α and c."""
    return [(row, theory.speedup(row.alpha, row.num_draft_tokens, row.cost)) for row in published.TABLE_4]


def figure_2(alphas: Sequence[float] = ALPHAS) -> Curves:
    """Expected tokens for one target pass by α, for several γ and without a limit."""
    limited = {
        f"γ = {gamma}": [theory.expected_tokens(alpha, gamma) for alpha in alphas]
        for gamma in published.FIGURE_2_GAMMAS
    }
    return {**limited, "γ = ∞": [theory.oracle_speedup(alpha, 0) for alpha in alphas]}


def figure_3(alphas: Sequence[float] = ALPHAS) -> Curves:
    """The optimal γ by α, for several c."""
    return {
        f"c = {cost:g}": [float(theory.optimal_num_draft_tokens(alpha, cost)) for alpha in alphas]
        for cost in published.FIGURE_3_COSTS
    }


def figure_4(alphas: Sequence[float] = ALPHAS) -> tuple[Curves, Curves]:
    """The factors of speed and of operations by α for several γ, with c = ĉ = 0."""
    gammas = published.FIGURE_4_GAMMAS
    return (
        {f"γ = {gamma}": [theory.speedup(alpha, gamma) for alpha in alphas] for gamma in gammas},
        {f"γ = {gamma}": [theory.operations(alpha, gamma) for alpha in alphas] for gamma in gammas},
    )
