"""`draftwise bench`: speculative against plain decoding, by target, drafter, γ, temperature and family."""

import os
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from draftwise.cli.drafting import (
    DrafterName,
    DraftersOption,
    asked_for,
    engine_for,
    make_drafters,
    states_read,
)
from draftwise.cli.options import (
    AUTO,
    DEFAULT_TARGET,
    ChatOption,
    DeviceOption,
    DtypeOption,
    EngineName,
    EngineOption,
    Loader,
    ThreadsOption,
    TrustRemoteCode,
    draft_tokens,
    listed,
    numbers,
)
from draftwise.cli.prompt import encoded
from draftwise.errors import OptionError

if TYPE_CHECKING:
    pass


def bench(
    prompts: Annotated[
        list[Path],
        typer.Argument(help="JSONL of prompts (as Spec-Bench and HumanEval have them), or text files."),
    ],
    *,
    out: Annotated[Path, typer.Option(help="A folder for runs.jsonl, report.html and pictures.")],
    target: Annotated[
        list[str] | None, typer.Option(help="A model; may be repeated.", metavar="MODEL")
    ] = None,
    drafters: DraftersOption = "lookup",
    num_draft_tokens: Annotated[
        str,
        typer.Option(
            help="auto, or each γ, with commas between; own is the drafter's own.", metavar="N,M,..."
        ),
    ] = AUTO,
    temperature: Annotated[str, typer.Option(help="With commas between.", metavar="T,U,...")] = "0",
    prompts_per_family: Annotated[int, typer.Option(help="How many prompts to take of each family.")] = 2,
    max_new_tokens: Annotated[int, typer.Option(help="The most tokens to generate for each.")] = 128,
    rounds: Annotated[int, typer.Option(help="How often each prompt is decoded in each way.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the samples at temperatures above 0.")] = 0,
    chat: ChatOption = None,
    engine: EngineOption = EngineName.AUTO,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Measure speculative beside plain decoding; run it again to go on where it was stopped."""
    from rich.console import Console

    from draftwise import pages, plots
    from draftwise.benchmarking import figures as speeds
    from draftwise.benchmarking import pictures, report
    from draftwise.benchmarking.records import Log
    from draftwise.benchmarking.running import Grid, Task, run_benchmark
    from draftwise.journal import digest
    from draftwise.models.machine import processor
    from draftwise.planning.prompts import read_prompts, some_of_each_task
    from draftwise.progress import shown

    # What can be refused without a model is refused before one is loaded.
    grid = Grid(
        tuple(map(draft_tokens, listed(num_draft_tokens))),
        numbers(float, temperature),
        max_new_tokens,
        rounds,
        seed,
    )
    if prompts_per_family < 1:
        raise OptionError(f"prompts-per-family is {prompts_per_family}; give at least 1.")
    wanted = asked_for(drafters)
    chosen = some_of_each_task(
        (prompt for file in prompts for prompt in read_prompts(file)), prompts_per_family
    )
    plots.axes()  # without matplotlib there is no report
    targets = target or [DEFAULT_TARGET]
    conditions = {
        "targets": targets,
        "drafters": [each.label for each in wanted],
        **asdict(grid),
        "prompts": [str(file) for file in prompts],
        "digest of the prompts": digest(chosen),
        "chat": chat,
        "engine": engine,
        "dtype": dtype,
        "device": device,
        "threads": threads,
        "machine": f"{processor()}, {os.cpu_count()} cores",
        "version": version("draftwise"),
    }
    labels = {each.label for each in wanted if each.name is not DrafterName.NONE}
    log = Log(out / "runs.jsonl", conditions, grid.group_size(len(labels)))

    load_model = Loader(engine_for(engine, wanted), dtype, device, threads, trust_remote_code)
    for source in targets:
        model = load_model(source, states_read(wanted))
        tasks = [Task(prompt.task, tuple(encoded(prompt, chat, model))) for prompt in chosen]
        with shown(None) as progress:
            run_benchmark(
                model,
                make_drafters(wanted, model, load_model),
                tasks,
                grid,
                log,
                name=source,
                progress=progress,
            )
    figures = speeds.all_figures(log.runs)
    theory = speeds.foretold(log.runs, figures)
    drawn = pictures.draw(log.runs, figures, theory)
    plots.save(drawn, out)
    pages.write(out / "report.html", report.html(figures, theory, drawn, conditions))
    Console().print(report.terminal_table(figures))
    print(f"wrote {out / 'report.html'}")
