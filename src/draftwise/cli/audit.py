"""`draftwise audit`: is speculative decoding of this pair lossless?"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from draftwise.cli.drafting import asked_for, make_drafters
from draftwise.cli.options import DEFAULT_TARGET, EngineName, TargetOption, TrustRemoteCode
from draftwise.cli.prompt import as_prompt

if TYPE_CHECKING:
    from draftwise.models.base import LanguageModel

FAULT = 1


def audit(
    prompts: Annotated[
        list[Path] | None,
        typer.Argument(help="JSONL of prompts, or text files; the default is a few that repeat themselves."),
    ] = None,
    *,
    target: TargetOption = DEFAULT_TARGET,
    drafter: Annotated[
        str,
        typer.Option(
            help="A way to guess, or several with commas between: lookup, draft-model=MODEL, ngram=PATH.",
            metavar="A,B,...",
        ),
    ] = "lookup",
    num_draft_tokens: Annotated[
        int | None, typer.Option(help="The most tokens guessed for one target pass.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="The tokens of each output that is compared.")] = 64,
    num_prompts: Annotated[int, typer.Option(help="How many prompts of the files are taken.")] = 8,
    temperature: Annotated[float, typer.Option(help="Of positions and samples; 0 leaves samples out.")] = 1.0,
    top_k: Annotated[int | None, typer.Option(help="Sample from the k most likely tokens.")] = None,
    top_p: Annotated[float, typer.Option(help="Sample from the fewest tokens with this much mass.")] = 1.0,
    min_p: Annotated[
        float, typer.Option(help="Sample from tokens at least this likely next to the likeliest.")
    ] = 0.0,
    verification: Annotated[str, typer.Option(help="The rule to audit.")] = "auto",
    lenience: Annotated[
        float, typer.Option(help="Of --verification lenient, which is a fault by intent below 1.")
    ] = 1.0,
    samples: Annotated[
        int | None, typer.Option(help="How many samples to draw; the default is as many as --seconds allow.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long to draw samples for.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Of the samples.")] = 0,
    chat: Annotated[
        bool | None,
        typer.Option("--chat/--raw", help="As chat messages; the default where the model has a template."),
    ] = None,
    engine: Annotated[EngineName, typer.Option(help="What runs the models; auto: onnx, torch on a GPU.")] = (
        EngineName.AUTO
    ),
    dtype: Annotated[str | None, typer.Option(help="Precision of the models.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or mps, as PyTorch names them.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads for each model.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each drafter.")] = False,
    trust_remote_code: TrustRemoteCode = False,
) -> int:
    """Compare speculative with plain decoding of a pair; the exit code is 1 if they differ by a fault."""
    from draftwise.auditing import audit as auditing
    from draftwise.auditing.report import sentences
    from draftwise.models.load import load
    from draftwise.planning.prompts import read_prompts
    from draftwise.sampling import SamplingParams
    from draftwise.verification import find_rule

    # What can be refused without a model is refused before one is loaded.
    sampling = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    find_rule(verification, lenience)
    wanted = asked_for(drafter)
    texts = [prompt.text for file in prompts or () for prompt in read_prompts(file)][:num_prompts]

    def load_model(source: str) -> "LanguageModel":
        return load(
            source,
            engine=engine,
            dtype=dtype,
            device=device,
            threads=threads,
            trust_remote_code=trust_remote_code,
        )

    model = load_model(target)
    texts_or_chats = [as_prompt(text, chat, model) for text in texts] if prompts else auditing.PROMPTS
    findings = []
    for guesser in make_drafters(wanted, model, load_model).values():
        made = auditing.audit(
            model,
            guesser,
            texts_or_chats,
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
