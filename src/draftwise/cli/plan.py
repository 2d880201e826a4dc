"""`draftwise plan`: which drafter, how many draft tokens, and what they would bring."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from draftwise.cli.drafting import DraftersOption, asked_for, engine_for, make_drafters, states_read
from draftwise.cli.options import (
    DEFAULT_TARGET,
    ChatOption,
    DeviceOption,
    EngineName,
    EngineOption,
    Loader,
    MinPOption,
    TargetOption,
    TemperatureOption,
    ThreadsOption,
    TopKOption,
    TopPOption,
    TrustRemoteCode,
)
from draftwise.cli.prompt import encoded, naming
from draftwise.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from draftwise.drafters.base import Drafter
    from draftwise.models.base import LanguageModel
    from draftwise.planning.check import Checked
    from draftwise.planning.prompts import Prompt
    from draftwise.planning.recommend import Plan
    from draftwise.sampling import SamplingParams


def plan(
    *,
    target: TargetOption = DEFAULT_TARGET,
    drafters: DraftersOption = "lookup",
    prompts: Annotated[
        Path,
        typer.Option(help="JSONL of prompts (as Spec-Bench and HumanEval have them), or a text file."),
    ],
    prompts_per_task: Annotated[int, typer.Option(help="How many prompts to take of each task.")] = 2,
    max_new_tokens: Annotated[int, typer.Option(help="Tokens that the target writes for each.")] = 128,
    max_draft_tokens: Annotated[
        int, typer.Option(help="The greatest constant number of draft tokens to look at.")
    ] = 16,
    temperature: TemperatureOption = 0.0,
    top_k: TopKOption = None,
    top_p: TopPOption = 1.0,
    min_p: MinPOption = 0.0,
    seed: Annotated[int, typer.Option(help="Of the text that the target writes.")] = 0,
    chat: ChatOption = None,
    engine: EngineOption = EngineName.AUTO,
    dtype: Annotated[
        list[str] | None,
        typer.Option(
            help="Precision of the target; repeat it to compare. The default is every conversion at hand, "
            "else the engine's own."
        ),
    ] = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the plan: FILE.png and FILE.svg.", metavar="FILE")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Then run the best choices and print predicted against measured.")
    ] = False,
    remeasure: Annotated[
        bool, typer.Option("--remeasure", help="Time the models anew, whatever an earlier profile says.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Predict the speed of each drafter and number of draft tokens, and recommend one or none."""
    from draftwise import plots
    from draftwise.cli import plan_report
    from draftwise.planning.check import check as run_check
    from draftwise.planning.prompts import read_prompts, some_of_each_task
    from draftwise.sampling import SamplingParams
    from draftwise.sequence import StopConditions

    sampling = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    StopConditions(max_new_tokens)
    for name, number in (("prompts-per-task", prompts_per_task), ("max-draft-tokens", max_draft_tokens)):
        if number < 1:
            raise OptionError(f"{name} is {number}; give at least 1.")
    wanted = asked_for(drafters)
    chosen = some_of_each_task(read_prompts(prompts), prompts_per_task)
    if plot:
        # What would be refused after the work is refused before it.
        plots.axes()
        plots.refuse_unwritable(plot.parent)

    engine = engine_for(engine, wanted)
    load_model = Loader(engine, None, device, threads, trust_remote_code)
    plans: list[Plan] = []
    checks: list[list[Checked]] = []
    precisions = dict.fromkeys(dtype or []) or _conversions(target, engine, trust_remote_code)
    for precision in precisions:
        model = replace(load_model, dtype=precision)(target, states_read(wanted))
        guessers = make_drafters(wanted, model, load_model)
        made = _plan(
            model, guessers, chosen, chat, sampling, max_new_tokens, max_draft_tokens, seed, remeasure
        )
        plans.append(made)
        checks.append(run_check(model, guessers, made, seed=seed + 1) if check else [])
    if as_json:
        print(json.dumps(plan_report.as_object(plans, checks), ensure_ascii=False))
    else:
        plan_report.show(plans, checks)
    if plot:
        from draftwise.planning.plot import draw

        several = len(plans) > 1
        pictures = {
            f"{plot.stem}-{precision}" if several else plot.stem: draw(made, checked)
            for precision, made, checked in zip(precisions, plans, checks, strict=True)
        }
        plots.save(pictures, plot.parent)
        files = [str(plot.parent / f"{name}{ending}") for name in pictures for ending in (".png", ".svg")]
        print("wrote", *files, file=sys.stderr if as_json else sys.stdout)


def _conversions(target: str, engine: EngineName, trust_remote_code: bool) -> "Sequence[str | None]":
    """The precisions that the target is converted to already, where there are several; else the default."""
    from draftwise.models.conversion import is_converted
    from draftwise.models.load import PRECISIONS
    from draftwise.models.sources import Kind, find
    from draftwise.progress import shown

    if engine is EngineName.TORCH:
        return [None]
    with shown(None) as progress:
        found = find(target, trust_remote_code=trust_remote_code, progress=progress)
    if found.kind is Kind.CONVERTED:
        return [None]
    at_hand = [dtype for dtype, precision in PRECISIONS.items() if is_converted(found, precision)]
    return at_hand if len(at_hand) > 1 else [None]


def _plan(
    model: "LanguageModel",
    guessers: "Mapping[str, Drafter]",
    prompts: "Sequence[Prompt]",
    chat: bool | None,
    sampling: "SamplingParams",
    max_new_tokens: int,
    max_draft_tokens: int,
    seed: int,
    remeasure: bool,
) -> "Plan":
    """Have the target write, and predict on that; what cannot be is refused before anything is timed."""
    from draftwise.models.base import refuse_encoder
    from draftwise.planning.guesses import refuse_unpredictable
    from draftwise.planning.profile import BUDGET, profile_for
    from draftwise.planning.recommend import make_plan
    from draftwise.planning.text import write_text
    from draftwise.progress import shown
    from draftwise.request import Request

    refuse_encoder(model, "planning")
    read = [encoded(prompt, chat, model) for prompt in prompts]
    for prompt, token_ids in zip(prompts, read, strict=True):
        with naming(prompt.where):
            Request(token_ids, sampling=sampling, max_new_tokens=max_new_tokens).sequence(model)
    drafters = list(guessers.values())
    for drafter in drafters:
        refuse_unpredictable(model, drafter, read[0])
    texts = []
    with shown(None) as progress:
        # By which they draft, and on which the whole plan rests.
        profile_for(model, drafters, budget=3 * BUDGET, remeasure=remeasure, progress=progress)
        for done, (prompt, token_ids) in enumerate(zip(prompts, read, strict=True), start=1):
            texts.append(
                write_text(
                    model,
                    token_ids,
                    task=prompt.task,
                    sampling=sampling,
                    max_new_tokens=max_new_tokens,
                    seed=seed,
                    drafters=drafters,
                )
            )
            progress(f"{model.name} writes", done / len(prompts))
        return make_plan(model, guessers, texts, max_draft_tokens=max_draft_tokens, progress=progress)
