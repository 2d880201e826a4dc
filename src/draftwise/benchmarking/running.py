"""The runs of a benchmark: every setting on every prompt, in turns with plain decoding."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from draftwise.benchmarking.records import PLAIN, Group, Log, Run, Setting
from draftwise.decoding import generate
from draftwise.drafters.base import Drafter
from draftwise.drafters.none import NoDrafter
from draftwise.errors import OptionError
from draftwise.models.base import LanguageModel
from draftwise.sampling import SamplingParams
from draftwise.types import Generation

WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt as token ids, and the family that it belongs to."""

    family: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """What is measured of each target and drafter; raises OptionError for a value out of range.

    `num_draft_tokens`: each as `stream` takes it, None being the drafter's own. `seed`: of the first round's
    samples.
    """

    num_draft_tokens: tuple[int | Literal["auto"] | None, ...] = ("auto",)
    temperatures: tuple[float, ...] = (0.0,)
    max_new_tokens: int = 128
    rounds: int = 3
    seed: int = 0
    verification: str = "auto"

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "rounds"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} is {getattr(self, name)}; give at least 1.")
        for number in self.num_draft_tokens:
            if isinstance(number, int) and number < 1:
                raise OptionError(
                    f"num_draft_tokens is {number}; give at least 1, as plain decoding is always measured."
                )
        for temperature in self.temperatures:
            SamplingParams(temperature)

    def group_size(self, num_drafters: int) -> int:
        """How many settings take turns."""
        return 1 + num_drafters * len(self.num_draft_tokens)

    def settings(self, target: str, drafters: Sequence[str], temperature: float) -> list[Setting]:
        """Plain decoding, then each drafter with each γ."""
        return [
            Setting(target, PLAIN, None, temperature),
            *(
                Setting(target, drafter, number, temperature)
                for drafter in drafters
                for number in self.num_draft_tokens
            ),
        ]


def run_benchmark(
    target: LanguageModel,
    drafters: Mapping[str, Drafter],
    tasks: Sequence[Task],
    grid: Grid,
    log: Log,
    *,
    name: str | None = None,
    progress: Callable[[str, float], None] = lambda stage, fraction: None,
) -> None:
    """Run what `log` lacks of a target's runs, adding each group as it finishes.

    `drafters`: by the names that the log has them under; `name`: the target's there. The settings of a group
    take turns at being first, since what a machine has just done may help or hinder what comes next.
    """
    name = name or target.name
    everyone: dict[str, Drafter] = {PLAIN: NoDrafter(), **drafters}
    done = log.groups
    groups = [
        Group(name, temperature, prompt, round)
        for round in range(grid.rounds)
        for temperature in grid.temperatures
        for prompt in range(len(tasks))
    ]

    def run(setting: Setting, prompt: int, round: int, max_new_tokens: int) -> Generation:
        return generate(
            target,
            tasks[prompt].token_ids,
            drafter=everyone[setting.drafter],
            sampling=SamplingParams(setting.temperature),
            max_new_tokens=max_new_tokens,
            num_draft_tokens=setting.num_draft_tokens,
            verification=grid.verification,
            seed=grid.seed + round,
        )

    waiting = [group for group in groups if group not in done]
    if waiting:  # a few tokens each, so that no setting pays for what happens only once
        for setting in grid.settings(name, list(drafters), waiting[0].temperature):
            run(setting, waiting[0].prompt, 0, min(WARM_UP_TOKENS, grid.max_new_tokens))
    for count, group in enumerate(waiting, start=len(groups) - len(waiting)):
        progress(f"measuring {name}", count / len(groups))
        settings = grid.settings(name, list(drafters), group.temperature)
        first = (group.prompt + group.round) % len(settings)
        log.add(
            Run.of(
                setting,
                tasks[group.prompt].family,
                group.prompt,
                group.round,
                run(setting, group.prompt, group.round, grid.max_new_tokens),
            )
            for setting in (*settings[first:], *settings[:first])
        )
    progress(f"measuring {name}", 1.0)
