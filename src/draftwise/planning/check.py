"""A prediction beside what then happened: the choices run in turns with plain decoding."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from statistics import median

from draftwise.decoding import generate
from draftwise.drafters.base import Drafter
from draftwise.drafters.none import NoDrafter
from draftwise.drafters.several import Several
from draftwise.models.base import LanguageModel
from draftwise.planning.predict import Prediction
from draftwise.planning.recommend import PLAIN, Choice, Plan
from draftwise.planning.text import Text
from draftwise.progress import Progress, shown
from draftwise.types import Step

ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Checked:
    """One choice on one task: what was predicted, and what was measured in the same terms."""

    choice: Choice
    task: str
    predicted_speedup: float
    predicted: Prediction
    measured: Prediction
    plain: Prediction  # measured, of plain decoding

    @property
    def speedup(self) -> float:
        return self.measured.speedup(self.plain)

    @property
    def ratio(self) -> float:
        """Predicted over measured speed-up: 1 is a perfect prediction."""
        return self.predicted_speedup / self.speedup


def check(
    target: LanguageModel,
    drafters: Mapping[str, Drafter],
    plan: Plan,
    *,
    rounds: int = ROUNDS,
    seed: int | None = 1,
    progress: Progress | None = None,
) -> list[Checked]:
    """Run the best choice, the runner-up, "auto" and plain decoding in turns; compare each task with its
    prediction.

    The seconds of each step are the median of the rounds. `seed`: not that of the plan's texts, where sampled
    text should not repeat them.
    """
    choices = [plan.plain]
    for choice in (plan.best, plan.runner_up, plan.auto):
        choices += [choice] if choice and choice.num_draft_tokens and choice not in choices else []
    using = {PLAIN: NoDrafter(), **drafters}
    if plan.auto:
        using[plan.auto.drafter] = Several(list(drafters.values()))
    measured = _measured(target, using, choices, plan.texts, rounds, seed, progress)
    plain = measured[0]
    return [
        Checked(
            choice,
            task,
            plan.speedup(choice, task),
            choice.by_task[task],
            measured[index][task],
            plain[task],
        )
        for index, choice in enumerate(choices)
        if choice.num_draft_tokens
        for task in plain
        if plain[task].tokens and measured[index][task].tokens
    ]


def _measured(
    target: LanguageModel,
    drafters: Mapping[str, Drafter],
    choices: Sequence[Choice],
    texts: Sequence[Text],
    rounds: int,
    seed: int | None,
    progress: Progress | None,
) -> list[dict[str, Prediction]]:
    """Totals by task of each choice, as a prediction has them."""
    runs: dict[tuple[int, int], list[tuple[Step, ...]]] = {}
    with shown(progress) as report:
        for turn in range(rounds):
            for place, text in enumerate(texts):
                for index in [(turn + place + each) % len(choices) for each in range(len(choices))]:
                    choice = choices[index]
                    generation = generate(
                        target,
                        text.prompt_ids,
                        drafter=drafters[choice.drafter],
                        sampling=text.sampling,
                        max_new_tokens=text.max_new_tokens,
                        num_draft_tokens=choice.num_draft_tokens,
                        seed=seed,
                    )
                    runs.setdefault((index, place), []).append(generation.steps[1:])
                report("running the choices", (turn + (place + 1) / len(texts)) / rounds)
    totals: list[dict[str, Prediction]] = [{} for _ in choices]
    for (index, place), repeated in runs.items():
        task = texts[place].task
        totals[index][task] = totals[index].get(task, Prediction()) + _totals(repeated)
    return totals


def _totals(repeated: Sequence[tuple[Step, ...]]) -> Prediction:
    """What a generation did after the pass that read its prompt, run several times with one seed.

    Where the runs took the same steps, the seconds of each are the median of its own; a drafter that learns
    from one text to the next guesses otherwise each time, and it is the mean of the runs.
    """
    taken = [[(step.drafted, step.emitted) for step in steps] for steps in repeated]
    if all(steps == taken[0] for steps in taken):
        seconds = [median(step.seconds.total for step in same) for same in zip(*repeated, strict=True)]
        return _total(repeated[0], seconds)
    each = [_total(steps, [step.seconds.total for step in steps]) for steps in repeated]
    return Prediction(*(part / len(each) for part in astuple(sum(each, Prediction()))))


def _total(steps: Sequence[Step], seconds: Sequence[float]) -> Prediction:
    return Prediction(
        tokens=sum(len(step.emitted) for step in steps),
        passes=len(steps),
        drafted=sum(len(step.drafted) for step in steps),
        seconds=sum(seconds),
    )


def errors(checked: Sequence[Checked]) -> tuple[float, float]:
    """The median and the largest distance from 1 of predicted over measured speed-up."""
    distances = [abs(one.ratio - 1) for one in checked]
    return median(distances), max(distances)
