"""What the runs of a benchmark say: speeds and speed-ups with intervals, acceptance, where the time went."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from draftwise import theory
from draftwise.benchmarking.records import Pass, Run, Setting

RESAMPLES = 2000
CONFIDENCE = 0.95
ALL = "all"
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Figures:
    """One setting on one family, after the pass that reads each prompt.

    `speedup`: tokens a second over those of plain decoding of the same prompts in the same rounds;
    `interval`: what 95% of bootstrap resamples of the prompts give, of the rounds where there is one prompt;
    None where there is one round of it. `shares`: of the time, by drafting, verifying, other. `same_output`:
    whether each output is plain's.
    """

    setting: Setting
    family: str
    prompts: int
    tokens_per_second: float
    speedup: float
    interval: Interval | None
    acceptance_rate: float | None
    tokens_per_pass: float
    shares: tuple[float, float, float]
    same_output: bool


def all_figures(runs: Sequence[Run]) -> list[Figures]:
    """The figures of each setting on each family, and on all of them together where there are several."""
    families = list(dict.fromkeys(run.family for run in runs))
    figures = []
    for setting in dict.fromkeys(run.setting for run in runs):
        own = pairs(runs, setting)
        for family in families:
            of_family = [pair for pair in own if pair[0].family == family]
            if one := _figures(setting, family, of_family):
                figures.append(one)
        if len(families) > 1 and (one := _figures(setting, ALL, own)):
            figures.append(one)
    return sorted(
        figures, key=lambda one: (one.setting.target, one.setting.temperature, not one.setting.is_plain)
    )


def pairs(runs: Iterable[Run], setting: Setting) -> list[tuple[Run, Run]]:
    """Each run of a setting with the plain run of its group; those too short to have a speed are left out."""
    runs = [run for run in runs if run.decoding]
    plain = {run.group: run for run in runs if run.setting.is_plain}
    return [(run, plain[run.group]) for run in runs if run.setting == setting and run.group in plain]


def _figures(setting: Setting, family: str, own: Sequence[tuple[Run, Run]]) -> Figures | None:
    if not own:
        return None
    passes = [each for run, _ in own for each in run.decoding]
    seconds = np.array([(each.draft, each.verify, each.other) for each in passes]).sum(axis=0)
    tokens = sum(each.emitted for each in passes)
    verified = sum(each.verified for each in passes)
    units = _units(own)
    draft, verify, other = (float(share) for share in seconds / seconds.sum())
    return Figures(
        setting,
        family,
        prompts=len({run.prompt for run, _ in own}),
        tokens_per_second=tokens / float(seconds.sum()),
        speedup=float(_speedup(units.sum(axis=0))),
        interval=bootstrap_interval(units, _speedup) if len(units) > 1 else None,
        acceptance_rate=sum(each.accepted for each in passes) / verified if verified else None,
        tokens_per_pass=tokens / len(passes),
        shares=(draft, verify, other),
        same_output=all(run.output == plain.output for run, plain in own),
    )


def _units(own: Sequence[tuple[Run, Run]]) -> NDArray[np.float64]:
    """`[units, 4]`: tokens and seconds, then those of plain decoding, of what is resampled as one."""
    by_prompt = len({run.prompt for run, _ in own}) > 1
    units: dict[int, NDArray[np.float64]] = {}
    for run, plain in own:
        unit = run.prompt if by_prompt else run.round
        units[unit] = units.get(unit, np.zeros(4)) + np.array([*_totals(run), *_totals(plain)])
    return np.array(list(units.values()))


def _totals(run: Run) -> tuple[float, float]:
    return float(sum(each.emitted for each in run.decoding)), sum(each.seconds for each in run.decoding)


def _speedup(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """`[..., 4]` totals to `[...]`."""
    tokens, seconds, plain_tokens, plain_seconds = np.moveaxis(totals, -1, 0)
    ratio: NDArray[np.float64] = (tokens / seconds) / (plain_tokens / plain_seconds)
    return ratio


def bootstrap_interval(
    units: NDArray[np.float64],
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    resamples: int = RESAMPLES,
) -> Interval:
    """The percentile interval of a statistic of the sum of `units` `[units, values]`, under a fixed seed."""
    counts = np.random.default_rng(0).multinomial(len(units), np.full(len(units), 1 / len(units)), resamples)
    edges = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
    low, high = np.quantile(statistic(counts @ units), edges)
    return float(low), float(high)


def span(interval: Interval | None) -> str | None:
    """An interval as a cell of a table."""
    return interval and f"{interval[0]:.2f} to {interval[1]:.2f}"


def acceptance_by_position(runs: Iterable[Run], setting: Setting) -> list[float]:
    """Of the drafts that reached a position, accepted before it, the share of which a token was accepted."""
    passes = [each for run in runs if run.setting == setting for each in run.passes]
    rates = []
    for position in range(max((each.depth for each in passes), default=0)):
        reached = [each for each in passes if each.verified > position]
        if not reached:
            break
        rates.append(sum(each.accepted > position for each in reached) / len(reached))
    return rates


@dataclass(frozen=True, slots=True)
class Foretold:
    """A setting's speed-up by Theorem 3.8 from its α, γ and c, by more of what was measured, and in fact.

    `with_pass_times` takes the time of each width of pass, the rate at each position and the drafts' lengths.
    """

    setting: Setting
    alpha: float
    cost: float
    by_the_paper: float
    with_pass_times: float
    measured: float


def foretold(runs: Sequence[Run], figures: Sequence[Figures]) -> list[Foretold]:
    """Theory beside measurement for each setting with a γ and drafts that are chains, over all its families.

    All of it comes from the same runs: α from their drafts, c and T(n) from the seconds of their steps.
    """
    found = []
    for one in _overall(figures):
        setting = one.setting
        if setting.gamma is None or one.acceptance_rate is None:
            continue
        matching = pairs(runs, setting)
        passes = [each for run, _ in matching for each in run.decoding]
        if any(each.depth < each.drafted for each in passes):
            continue  # the theorem is of chains
        single = median(each.verify for _, run in matching for each in run.decoding)
        draft = sum(each.draft for each in passes) / max(1, sum(each.drafted for each in passes))
        times = _verify_by_width(passes)
        rates = acceptance_by_position(runs, setting)
        # A draft may be shorter than γ, as lookups often find nothing to copy, and longer than there are
        # rates, where nothing was ever accepted that far.
        tokens = sum(theory.expected_tokens(rates, min(each.drafted, len(rates))) for each in passes)
        seconds = sum(each.drafted * draft + times[each.drafted + 1] for each in passes)
        cost = draft / single
        found.append(
            Foretold(
                setting,
                one.acceptance_rate,
                cost,
                theory.speedup(one.acceptance_rate, setting.gamma, cost),
                tokens * single / seconds,
                one.speedup,
            )
        )
    return found


def _overall(figures: Sequence[Figures]) -> list[Figures]:
    """The figures of each setting on all families together."""
    return list({one.setting: one for one in figures}.values())  # ALL comes last, where there is one


def _verify_by_width(passes: Sequence[Pass]) -> dict[int, float]:
    by_width: dict[int, list[float]] = {}
    for each in passes:
        by_width.setdefault(each.drafted + 1, []).append(each.verify)
    return {width: median(seconds) for width, seconds in by_width.items()}
