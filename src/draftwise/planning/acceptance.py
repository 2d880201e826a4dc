"""Acceptance rates from text that the target wrote: over all of it, by task, by position in the draft."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from draftwise.drafters.base import Drafter
from draftwise.models.base import LanguageModel
from draftwise.planning.measure import MAX_DRAFT_TOKENS, Trace, traces
from draftwise.planning.text import Text
from draftwise.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class Acceptance:
    """How a drafter's guesses fare under one sampling.

    `alpha`: the mean of Σ min(p, q) over the positions where something is drafted (Corollary 3.6 of
    2211.17192), None if nothing ever is. `by_position`: for each position of a draft that these texts reach,
    the share accepted of those whose predecessors were, over all starts; it follows `Trace.survival`.
    """

    alpha: float | None
    by_task: Mapping[str, float | None]
    by_position: Sequence[float]

    @classmethod
    def of(cls, found: Sequence[Trace]) -> "Acceptance":
        """From traces of one drafter under one sampling."""
        tasks = dict.fromkeys(trace.text.task for trace in found)
        by_task = {task: _alpha([trace for trace in found if trace.text.task == task]) for task in tasks}
        return cls(_alpha(found), by_task, _by_position(found))


def measure_acceptance(
    target: LanguageModel,
    drafters: Mapping[str, Drafter],
    texts: Sequence[Text],
    samplings: Sequence[SamplingParams],
    max_draft_tokens: int = MAX_DRAFT_TOKENS,
) -> dict[str, list[Acceptance]]:
    """For each drafter the acceptance under each of `samplings`; each model reads each text once.

    Raises what `traces` raises.
    """
    by_text = [traces(target, drafters, text, samplings, max_draft_tokens) for text in texts]
    return {
        name: [Acceptance.of([found[name][index] for found in by_text]) for index in range(len(samplings))]
        for name in drafters
    }


def _alpha(found: Sequence[Trace]) -> float | None:
    rates = np.concatenate([np.zeros(0), *(trace.rates for trace in found)])
    drafted = rates[~np.isnan(rates)]
    return float(drafted.mean()) if len(drafted) else None


def _by_position(found: Sequence[Trace]) -> list[float]:
    reached = accepted = np.zeros(max((trace.max_draft_tokens for trace in found), default=0))
    for trace in found:
        positions = np.arange(trace.max_draft_tokens)
        # A draft may not reach beyond the text, of which nothing is known.
        left = np.minimum(trace.lengths, len(trace.text) - np.arange(len(trace.text)))
        in_draft = positions < left[:, None]
        reached = reached + (trace.survival[:, :-1] * in_draft).sum(axis=0)
        accepted = accepted + (trace.survival[:, 1:] * in_draft).sum(axis=0)
    return [float(a / r) for a, r in zip(accepted, reached, strict=True) if r > 0]
