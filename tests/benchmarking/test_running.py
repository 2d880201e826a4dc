from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from draftwise.benchmarking.records import PLAIN, Log, Setting
from draftwise.benchmarking.running import Grid, Task, run_benchmark
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.errors import OptionError
from draftwise.models.base import LanguageModel
from draftwise.models.context import ContextState
from draftwise.models.tabular import TabularModel

TASKS = [Task("one", (0, 1)), Task("one", (2, 1)), Task("two", (3,))]
GRID = Grid((2, None), (0.0, 1.0), max_new_tokens=6, rounds=2, seed=5)


class KilledError(Exception):
    """Stands for the process being killed."""


class Counting(TabularModel):
    """Counts the generations that it serves, and dies at one of them."""

    generations = 0
    dies_at = 0

    def open(self, *arguments: Any, **options: Any) -> ContextState:
        self.generations += 1
        if self.generations == self.dies_at:
            raise KilledError
        return super().open(*arguments, **options)


def target() -> Counting:
    return Counting(TabularModel.random(5, seed=1).table, name="target")


def drafters(model: LanguageModel) -> dict[str, PromptLookup | DraftModel]:
    return {"lookup": PromptLookup(), "draft": DraftModel(TabularModel.random(5, seed=2))}


def order(log: Log) -> Sequence[tuple[object, ...]]:
    return [(run.group, run.setting, run.output, run.family) for run in log.runs]


def test_every_setting_on_every_prompt_in_turns(tmp_path: Path) -> None:
    log = Log(tmp_path / "runs.jsonl", {}, GRID.group_size(2))
    run_benchmark(target(), drafters(target()), TASKS, GRID, log)
    settings = GRID.settings("target", ["lookup", "draft"], 0.0)
    assert settings == [
        Setting("target", PLAIN, None, 0.0),
        *(Setting("target", drafter, gamma, 0.0) for drafter in ("lookup", "draft") for gamma in (2, None)),
    ]
    assert len(log.runs) == len(TASKS) * 2 * 2 * len(settings)
    for start in range(0, len(log.runs), len(settings)):
        turn = log.runs[start : start + len(settings)]
        assert len({run.group for run in turn}) == 1
        assert len({run.setting for run in turn}) == len(settings)
    assert len({log.runs[start].setting for start in range(0, len(log.runs), 5)}) > 2  # who is first varies
    greedy = [run for run in log.runs if run.setting.temperature == 0]
    for prompt in range(len(TASKS)):
        assert len({run.output for run in greedy if run.prompt == prompt}) == 1
    assert all(sum(each.emitted for each in run.passes) == 6 for run in log.runs)
    assert (
        max(each.drafted for run in log.runs if run.setting.num_draft_tokens == 2 for each in run.passes) == 2
    )


def test_one_that_was_killed_goes_on_where_it_stopped(tmp_path: Path) -> None:
    whole = Log(tmp_path / "whole.jsonl", {}, GRID.group_size(2))
    model = target()
    run_benchmark(model, drafters(model), TASKS, GRID, whole)
    in_all = model.generations

    model = target()
    model.dies_at = 30
    with pytest.raises(KilledError):
        run_benchmark(
            model, drafters(model), TASKS, GRID, Log(tmp_path / "runs.jsonl", {}, GRID.group_size(2))
        )
    rest = target()
    log = Log(tmp_path / "runs.jsonl", {}, GRID.group_size(2))
    done = len(log.runs)
    run_benchmark(rest, drafters(rest), TASKS, GRID, log)
    assert order(log) == order(whole)
    assert 0 < done < len(log.runs)
    assert rest.generations == in_all - done

    finished = target()
    run_benchmark(
        finished, drafters(finished), TASKS, GRID, Log(tmp_path / "runs.jsonl", {}, GRID.group_size(2))
    )
    assert finished.generations == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rounds": 0}, "rounds is 0"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"num_draft_tokens": (4, 0)}, "num_draft_tokens is 0"),
        ({"temperatures": (0.0, -1.0)}, "temperature is -1"),
    ],
)
def test_options_out_of_range(options: dict[str, object], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Grid(**options)  # type: ignore[arg-type]
