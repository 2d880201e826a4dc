"""Which drafter and how many tokens to draft, for a target and the prompts that it is meant for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.none import NoDrafter
from draftwise.models.base import LanguageModel
from draftwise.planning.acceptance import Acceptance
from draftwise.planning.measure import MAX_DRAFT_TOKENS, Trace, traces
from draftwise.planning.predict import Costs, Prediction, as_written, overhead, predict
from draftwise.planning.profile import BUDGET, Profile, drafter_key, profile_for
from draftwise.planning.text import Text
from draftwise.planning.timing import Clock, draft_times
from draftwise.progress import Progress, shown

PLAIN = "none"


@dataclass(frozen=True, slots=True)
class Choice:
    """A drafter and a γ, and what they would bring for each task; γ = 0 is plain decoding.

    "auto" is of all drafters at once, each step taking what pays.
    """

    drafter: str
    num_draft_tokens: int | Literal["auto"]
    by_task: Mapping[str, Prediction]

    @property
    def total(self) -> Prediction:
        return sum(self.by_task.values(), Prediction())


@dataclass(frozen=True, slots=True)
class Candidate:
    """What was measured of one drafter, and its choices of γ from 1 up.

    `memory_cost`: the bytes of its weights over those of the target's.
    """

    drafter: str
    acceptance: Acceptance
    memory_cost: float
    choices: Sequence[Choice]

    @property
    def best(self) -> Choice:
        return max(self.choices, key=lambda choice: choice.total.tokens_per_second)


@dataclass(frozen=True, slots=True)
class Plan:
    """The predictions for one target in one precision, from what it wrote for some prompts.

    `auto`: None where the texts were not written with these drafters.
    """

    target: str
    runs_on: str
    profile: Profile
    texts: Sequence[Text]
    plain: Choice
    candidates: Sequence[Candidate]
    auto: Choice | None = None

    def speedup(self, choice: Choice, task: str | None = None) -> float:
        """Predicted decode tokens a second over plain decoding's, of one task or of all."""
        if task is None:
            return choice.total.speedup(self.plain.total)
        return choice.by_task[task].speedup(self.plain.by_task[task])

    @property
    def ranking(self) -> list[Choice]:
        """The best choice of each drafter, "auto" and plain decoding, the fastest first."""
        choices = [self.plain, *(candidate.best for candidate in self.candidates)]
        choices += [self.auto] if self.auto else []
        return sorted(choices, key=lambda choice: -choice.total.tokens_per_second)

    @property
    def best(self) -> Choice:
        return self.ranking[0]

    @property
    def runner_up(self) -> Choice:
        """The next best kind of choice; where there is no other than plain decoding, the next best γ."""
        others = [choice for choice in self.ranking[1:] if choice.num_draft_tokens]
        if others:
            return others[0]
        rest = [
            choice for candidate in self.candidates for choice in candidate.choices if choice != self.best
        ]
        return max(rest, key=lambda choice: choice.total.tokens_per_second, default=self.plain)

    @property
    def margin(self) -> float:
        """How much faster the best choice is than the next one of another kind, plain decoding included."""
        ranking = self.ranking
        return ranking[0].total.speedup(ranking[1].total) - 1 if len(ranking) > 1 else 0.0


def make_plan(
    target: LanguageModel,
    drafters: Mapping[str, Drafter],
    texts: Sequence[Text],
    *,
    max_draft_tokens: int = MAX_DRAFT_TOKENS,
    budget: float = BUDGET,
    progress: Progress | None = None,
    clock: Clock = perf_counter,
) -> Plan:
    """Predict every drafter and γ up to `max_draft_tokens` on what the target wrote.

    `drafters` by the names that the plan is to show. `texts`: at least one, all written with one sampling;
    where these drafters drafted for them, "auto" is predicted too. `budget` and `clock`: as of `profile_for`.
    """
    with shown(progress) as report:
        everyone = {PLAIN: NoDrafter(), **drafters}
        # What cannot be predicted is refused here, before anything is timed.
        found = _traced(target, everyone, texts, max_draft_tokens, report)
        profile = profile_for(
            target,
            list(drafters.values()),
            budget=budget,
            progress=report,
            clock=clock,
        )
        other = overhead(texts)
        candidates = []
        for name, drafter in drafters.items():
            times = profile.drafters[drafter_key(drafter)]
            if texts[0].sampling.temperature > 0:  # the profile's drafts are greedy, which is quicker
                times = draft_times(
                    drafter,
                    target,
                    profile.verify,
                    budget=budget / 4,
                    clock=clock,
                    progress=report,
                    sampling=texts[0].sampling,
                )
            costs = Costs(profile.verify, times.draft, other)
            choices = _choices(name, found[name], costs, range(1, max_draft_tokens + 1))
            acceptance = Acceptance.of(found[name])
            candidates.append(Candidate(name, acceptance, _memory_cost(drafter, target), choices))
        (plain,) = _choices(PLAIN, found[PLAIN], Costs(profile.verify, None, other), range(1))
        auto = _auto(drafters, texts, Costs(profile.verify, None, other))
    return Plan(target.name, profile.conditions.runs_on, profile, texts, plain, candidates, auto)


def _traced(
    target: LanguageModel,
    drafters: Mapping[str, Drafter],
    texts: Sequence[Text],
    max_draft_tokens: int,
    progress: Progress,
) -> dict[str, list[Trace]]:
    """A trace of each text for each drafter."""
    found: dict[str, list[Trace]] = {name: [] for name in drafters}
    for done, text in enumerate(texts, start=1):
        for name, each in traces(target, drafters, text, [text.sampling], max_draft_tokens).items():
            found[name] += each
        progress("replaying the drafters", done / len(texts))
    return found


def _choices(name: str, found: Sequence[Trace], costs: Costs, lengths: range) -> list[Choice]:
    seconds = [costs.along(trace.text, trace.max_draft_tokens) for trace in found]
    return [
        Choice(
            name,
            num_draft_tokens,
            _by_task(
                (trace.text, predict(trace, num_draft_tokens, along))
                for trace, along in zip(found, seconds, strict=True)
            ),
        )
        for num_draft_tokens in lengths
    ]


def _auto(drafters: Mapping[str, Drafter], texts: Sequence[Text], costs: Costs) -> Choice | None:
    """What drafting as far as pays brought where the texts were written so, with all drafters at hand."""
    if not drafters or any(text.drafters != tuple(drafters.values()) for text in texts):
        return None
    return Choice(" + ".join(drafters), "auto", _by_task((text, as_written(text, costs)) for text in texts))


def _by_task(predictions: Iterable[tuple[Text, Prediction]]) -> dict[str, Prediction]:
    by_task: dict[str, Prediction] = {}
    for text, prediction in predictions:
        by_task[text.task] = by_task.get(text.task, Prediction()) + prediction
    return by_task


def _memory_cost(drafter: Drafter, target: LanguageModel) -> float:
    """Bytes of the draft model's weights over the target's; 0 without one, or where a size is unknown."""
    model = drafter.model if isinstance(drafter, DraftModel) else None
    own, read = getattr(model, "weight_bytes", 0), getattr(target, "weight_bytes", 0)
    return own / read if read else 0.0


def verdict(plan: Plan) -> str:
    """One sentence: what to do."""
    best = plan.best
    if not plan.plain.total.tokens:
        return (
            f"There is nothing to judge by: {plan.target} wrote one token after each of these prompts, with "
            "the pass that read it."
        )
    if not best.num_draft_tokens:
        return f"Do not speculate: plain decoding of {plan.target} is fastest for these prompts."
    how_far = (
        "as far as pays (auto)"
        if best.num_draft_tokens == "auto"
        else f"up to {best.num_draft_tokens} tokens"
    )
    return (
        f"Draft with {best.drafter}, {how_far}: "
        f"{plan.speedup(best):.2f} times as fast as plain decoding, "
        f"{plan.margin:.0%} ahead of the next choice."
    )
