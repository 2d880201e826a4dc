"""All experiments of the paper on one target, one after the other, and what they leave behind."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftwise.benchmarking.figures import all_figures, foretold
from draftwise.benchmarking.records import Log, Pass
from draftwise.benchmarking.running import Grid, Task, run_benchmark
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.ngram import NgramModel
from draftwise.drafters.none import NoDrafter
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.journal import Journal
from draftwise.models.base import LanguageModel
from draftwise.paper import pictures
from draftwise.paper.acceptance import Rates, measure_texts
from draftwise.paper.steps import GREEDY, SAMPLED, run_steps, token_by_token
from draftwise.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRACED_TOKENS = 32  # of Figure 5
TRACED_GAMMAS = (7, 3)
NGRAMS = {"unigram": 1, "bigram": 2}


class Study:
    """The drafters at hand for one target: draft models, n-gram models of a corpus, prompt lookup."""

    def __init__(
        self,
        target: LanguageModel,
        draft_models: Mapping[str, LanguageModel],
        prompts: Sequence[tuple[str, Sequence[int]]],
        corpus: Sequence[str] = (),
    ) -> None:
        """`prompts`: (task, token ids); `corpus`: texts to count, without which there is no n-gram model."""
        self.target = target
        self.prompts = prompts
        tokenizer = target.tokenizer
        counted = [tokenizer.encode(text) for text in corpus] if tokenizer else []
        ngrams = {
            name: NgramModel.count(counted, target.vocab_size, order, tokenizer=tokenizer, name=name)
            for name, order in (NGRAMS if counted else {}).items()
        }
        models = {name: DraftModel(model, name) for name, model in {**draft_models, **ngrams}.items()}
        self.drafters: dict[str, Drafter] = {**models, "lookup": PromptLookup()}
        self.shown = next(iter(draft_models), "lookup")  # the drafter of Figures 1 and 5
        self.pictures: dict[str, Figure] = {}

    def run(
        self,
        num_tokens: int,
        speed_prompts: int,
        grid: Grid,
        folder: Path,
        conditions: Mapping[str, Any],
        machine: Mapping[str, Any],
        progress: Progress,
    ) -> dict[str, Any]:
        """Tables 3, 4 and 5 and Figures 1 and 5 as JSON values; `pictures` then holds the figures.

        In `folder` a line is kept of each text and of each timed run as it is done, and what is there is not
        done again. `conditions`: JSON values on which the target's texts depend; `machine`: those on which
        only speeds do. Raises OptionError where what is there has others.
        """
        texts = Journal(folder / "texts.jsonl", conditions)
        texts.rewrite(texts.read())
        speeds = Log(
            folder / "walltime.jsonl",
            {**conditions, **machine, **asdict(grid), "prompts timed": speed_prompts},
            grid.group_size(len(self.drafters)),
        )
        rates = self._rates(num_tokens, grid.max_new_tokens, texts, progress)
        return {
            "target": self.target.name,
            "conditions": {**conditions, **machine, "tokens asked for": num_tokens},
            "acceptance": [asdict(rate) for rate in rates],
            "walltime": self._walltime(speed_prompts, grid, speeds, progress),
            "figure_1": self._figure_1(grid),
            "figure_5": self._figure_5(),
        }

    def _rates(
        self, num_tokens: int, max_new_tokens: int, journal: Journal, progress: Progress
    ) -> list[Rates]:
        prompts = [token_ids for _, token_ids in self.prompts]
        rates = []
        for sampling in (GREEDY, SAMPLED):
            measured = measure_texts(
                self.target, self.drafters, prompts, sampling, num_tokens, max_new_tokens, journal, progress
            )
            rates += [Rates.of(drafter, measured) for drafter in self.drafters]
        return rates

    def _walltime(self, speed_prompts: int, grid: Grid, log: Log, progress: Progress) -> list[dict[str, Any]]:
        tasks = [Task(task, tuple(token_ids)) for task, token_ids in self.prompts[:speed_prompts]]
        run_benchmark(self.target, self.drafters, tasks, grid, log, progress=progress)
        figures = all_figures(log.runs)
        intervals = {one.setting: one.interval for one in figures}  # that of all families comes last
        rows = [(asdict(one), one.setting) for one in foretold(log.runs, figures)]
        return [{**row.pop("setting"), **row, "interval": intervals[setting]} for row, setting in rows]

    def _figure_1(self, grid: Grid) -> list[list[tuple[str, str]]]:
        drafter = self.drafters[self.shown]
        steps = run_steps(
            self.target, self.prompts[0][1], drafter, grid.num_draft_tokens[0], grid.max_new_tokens, SAMPLED
        )
        tokenizer = self.target.tokenizer
        lines = token_by_token(steps, tokenizer.decode if tokenizer else str)
        self.pictures["figure-1"] = pictures.figure_1(lines)
        return lines

    def _figure_5(self) -> dict[str, list[dict[str, Any]]]:
        runs: dict[str, tuple[Drafter, int]] = {
            f"{self.shown}, γ = {gamma}": (self.drafters[self.shown], gamma) for gamma in TRACED_GAMMAS
        }
        runs["plain"] = (NoDrafter(), 0)
        traces = {}
        for label, (using, gamma) in runs.items():
            steps = run_steps(self.target, self.prompts[0][1], using, gamma, TRACED_TOKENS)
            traces[label] = [Pass.of(step) for step in steps[1:]]  # the first one reads the prompt
        self.pictures["figure-5"] = pictures.figure_5(traces)
        return {label: [asdict(each) for each in passes] for label, passes in traces.items()}


def saved(results: Mapping[str, Any]) -> str:
    """The results as the text of a JSON file."""
    return json.dumps(results, indent=1, ensure_ascii=False) + "\n"
