"""`draftwise paper`: each table and figure of 2211.17192, and the experiments on models at hand."""

import os
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from draftwise.cli.options import (
    DEFAULT_TARGET,
    ChatOption,
    DeviceOption,
    DtypeOption,
    EngineName,
    EngineOption,
    Loader,
    TargetOption,
    ThreadsOption,
    TrustRemoteCode,
)
from draftwise.cli.prompt import encoded
from draftwise.errors import OptionError


def paper(
    *,
    out: Annotated[Path, typer.Option(help="A folder for index.html, results.json and the pictures.")],
    prompts: Annotated[
        Path | None,
        typer.Option(help="JSONL of prompts or a text file, to experiment with; without it, theory alone."),
    ] = None,
    target: TargetOption = DEFAULT_TARGET,
    draft_model: Annotated[
        list[str] | None, typer.Option(help="A smaller model that drafts; may be repeated.", metavar="MODEL")
    ] = None,
    corpus: Annotated[
        list[Path] | None,
        typer.Option(
            help="JSONL of prompts or a text file to count the n-gram models from; may be repeated."
        ),
    ] = None,
    tokens: Annotated[
        int, typer.Option(help="How many tokens of the target α is measured on; the paper's 10000.")
    ] = 10_000,
    max_new_tokens: Annotated[int, typer.Option(help="The most tokens to generate for one prompt.")] = 128,
    num_draft_tokens: Annotated[int, typer.Option(help="γ of the speeds that are measured.")] = 4,
    speed_prompts: Annotated[int, typer.Option(help="Prompts that speeds are measured on.")] = 4,
    rounds: Annotated[int, typer.Option(help="How often each is decoded in each way.")] = 2,
    chat: ChatOption = None,
    engine: EngineOption = EngineName.AUTO,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Regenerate the tables and figures of the paper that speculative decoding comes from."""
    from draftwise import pages, plots
    from draftwise.benchmarking.running import Grid
    from draftwise.journal import digest
    from draftwise.models.machine import processor
    from draftwise.paper import page, pictures
    from draftwise.paper.study import Study, saved
    from draftwise.planning.prompts import read_prompts
    from draftwise.progress import shown

    if tokens < 1:
        raise OptionError(f"tokens is {tokens}; give at least 1.")
    if speed_prompts < 1:
        raise OptionError(f"speed-prompts is {speed_prompts}; give at least 1.")
    grid = Grid((num_draft_tokens,), (0.0, 1.0), max_new_tokens, rounds, verification="token")
    questions = read_prompts(prompts) if prompts else []
    corpora = [prompt.text for file in corpus or [] for prompt in read_prompts(file)]
    drawn = pictures.of_theory()
    results = None
    if questions:
        load_model = Loader(engine, dtype, device, threads, trust_remote_code)
        model = load_model(target)
        study = Study(
            model,
            {Path(source).name: load_model(source) for source in draft_model or []},
            [(prompt.task, encoded(prompt, chat, model)) for prompt in questions],
            corpora,
        )
        conditions = {
            "target": target,
            "draft models": draft_model,
            "prompts": str(prompts),
            "digest of the prompts": digest(questions),
            "corpus": [str(file) for file in corpus or []],
            "digest of the corpus": digest(corpora),
            "max_new_tokens": max_new_tokens,
            "chat": chat,
            "engine": engine,
            "dtype": dtype,
            "device": device,
            "version": version("draftwise"),
        }
        machine = {"threads": threads, "machine": f"{processor()}, {os.cpu_count()} cores"}
        with shown(None) as progress:
            results = study.run(tokens, speed_prompts, grid, out, conditions, machine, progress)
        drawn |= study.pictures
        pages.write(out / "results.json", saved(results))
    plots.save(drawn, out)
    pages.write(out / "index.html", page.html(drawn, results))
    print(f"wrote {out / 'index.html'}")
