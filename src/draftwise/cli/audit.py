"""`draftwise audit`: is speculative decoding of this pair lossless?"""

import json
from pathlib import Path
from typing import Annotated

import typer

from draftwise.cli.drafting import DraftersOption, asked_for, engine_for, make_drafters, states_read
from draftwise.cli.options import (
    DEFAULT_TARGET,
    ChatOption,
    DeviceOption,
    DtypeOption,
    EngineName,
    EngineOption,
    Loader,
    MinPOption,
    TargetOption,
    ThreadsOption,
    TopKOption,
    TopPOption,
    TrustRemoteCode,
)
from draftwise.cli.prompt import encoded

FAULT = 1


def audit(
    prompts: Annotated[
        list[Path] | None,
        typer.Argument(help="JSONL of prompts, or text files; the default is a few that repeat themselves."),
    ] = None,
    *,
    target: TargetOption = DEFAULT_TARGET,
    drafter: DraftersOption = "lookup",
    num_draft_tokens: Annotated[
        int | None, typer.Option(min=1, help="The most tokens guessed for one target pass.")
    ] = None,
    max_new_tokens: Annotated[
        int, typer.Option(min=1, help="The tokens of each output that is compared.")
    ] = 64,
    num_prompts: Annotated[int, typer.Option(min=1, help="How many prompts of the files are taken.")] = 8,
    temperature: Annotated[float, typer.Option(help="Of positions and samples; 0 leaves samples out.")] = 1.0,
    top_k: TopKOption = None,
    top_p: TopPOption = 1.0,
    min_p: MinPOption = 0.0,
    verification: Annotated[str, typer.Option(help="The rule to audit.")] = "auto",
    lenience: Annotated[
        float, typer.Option(help="Of --verification lenient, which is a fault by intent below 1.")
    ] = 1.0,
    samples: Annotated[
        int | None,
        typer.Option(min=1, help="How many samples to draw; the default is as many as --seconds allow."),
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long to draw samples for.")] = 60.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the samples.")] = 0,
    chat: ChatOption = None,
    engine: EngineOption = EngineName.AUTO,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each drafter.")] = False,
    trust_remote_code: TrustRemoteCode = False,
) -> int:
    """Compare speculative with plain decoding of a pair; the exit code is 1 if they differ by a fault."""
    from draftwise.auditing import audit as auditing
    from draftwise.auditing.report import sentences
    from draftwise.planning.prompts import read_prompts
    from draftwise.sampling import SamplingParams
    from draftwise.verification import find_rule

    # What can be refused without a model is refused before one is loaded.
    sampling = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    find_rule(verification, lenience)
    wanted = asked_for(drafter)
    chosen = [prompt for file in prompts or () for prompt in read_prompts(file)][:num_prompts]

    load_model = Loader(engine_for(engine, wanted), dtype, device, threads, trust_remote_code)
    model = load_model(target, states_read(wanted))
    read = [encoded(prompt, chat, model) for prompt in chosen] if prompts else auditing.PROMPTS
    findings = []
    for guesser in make_drafters(wanted, model, load_model).values():
        made = auditing.audit(
            model,
            guesser,
            read,
            sampling=sampling,
            max_new_tokens=max_new_tokens,
            num_draft_tokens=num_draft_tokens,
            verification=verification,
            lenience=lenience,
            num_samples=samples,
            seconds=seconds,
            seed=seed,
        )
        print(json.dumps(made.as_object()) if as_json else "\n".join(sentences(made)), flush=True)
        findings.append(made.finding)
    return FAULT if auditing.Finding.FAULT in findings else 0
