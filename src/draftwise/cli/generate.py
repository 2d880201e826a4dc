"""`draftwise generate`: text from a prompt, speculatively."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from draftwise.cli import report
from draftwise.cli.controls import banned, chosen_grammar, logit_biases
from draftwise.cli.drafting import (
    TREE_HELP,
    DrafterName,
    DrafterOptions,
    chosen_drafter,
    engine_for,
    keep_corpus,
    make_drafter,
    states_read,
)
from draftwise.cli.many import Answers, Texts, answer_all
from draftwise.cli.options import (
    AUTO,
    DEFAULT_TARGET,
    ChatOption,
    DeviceOption,
    DtypeOption,
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
    draft_tokens,
)
from draftwise.cli.prompt import as_prompt, prompt_text
from draftwise.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from draftwise.drafters.base import Drafter
    from draftwise.types import Step

WARM_UP_TOKENS = 16


def generate(
    prompt: Annotated[str | None, typer.Argument(help="The prompt; else --file or standard input.")] = None,
    *,
    file: Annotated[
        Path | None, typer.Option(help="Read the prompt from a file; a prompt argument goes before its text.")
    ] = None,
    target: TargetOption = DEFAULT_TARGET,
    drafter: Annotated[
        DrafterName | None,
        typer.Option(help="How to guess; the default is what the options below imply, and lookup."),
    ] = None,
    draft_model: Annotated[
        str | None, typer.Option(help="A smaller model that drafts.", metavar="MODEL")
    ] = None,
    ngram: Annotated[
        Path | None, typer.Option(help="An n-gram model made by draftwise ngram, or a text file to count.")
    ] = None,
    heads: Annotated[
        str | None,
        typer.Option(
            help="Heads trained for the target (Medusa, EAGLE, DFlash, ...): a folder or a hub id.",
            metavar="HEADS",
        ),
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="Earlier outputs for the drafter suffix, which adds to them.")
    ] = None,
    exit_layer: Annotated[
        int | None, typer.Option(help="The drafter self stops after this many of the target's layers.")
    ] = None,
    skip_layers: Annotated[
        str | None, typer.Option(help="The drafter self leaves these out, as in 3,5,8-11.", metavar="LAYERS")
    ] = None,
    tree: Annotated[
        str | None,
        typer.Option(help=f"A draft model or heads guess a tree: {TREE_HELP}."),
    ] = None,
    num_draft_tokens: Annotated[
        str,
        typer.Option(
            help="The most tokens guessed for one target pass; auto: as many as pay, by costs that are "
            "measured once on this machine; own: the drafter's own number.",
            metavar="auto|own|N",
        ),
    ] = AUTO,
    max_new_tokens: Annotated[int, typer.Option(help="The most tokens to generate.")] = 256,
    temperature: TemperatureOption = 0.0,
    top_k: TopKOption = None,
    top_p: TopPOption = 1.0,
    min_p: MinPOption = 0.0,
    typical_p: Annotated[
        float, typer.Option(help="Sample from the most typical tokens with this much mass.")
    ] = 1.0,
    repetition_penalty: Annotated[
        float, typer.Option(help="Above 1: less of what prompt and output hold already.")
    ] = 1.0,
    presence_penalty: Annotated[float, typer.Option(help="Above 0: less of what the output holds.")] = 0.0,
    frequency_penalty: Annotated[
        float, typer.Option(help="Above 0: less of what the output holds, by how often it does.")
    ] = 0.0,
    logit_bias: Annotated[
        list[str] | None,
        typer.Option(help="Added to the logit of a token; may be repeated.", metavar="ID=NUMBER"),
    ] = None,
    ban: Annotated[
        list[str] | None,
        typer.Option(help="Never write this, or the token of an id; may be repeated.", metavar="TEXT|#ID"),
    ] = None,
    min_new_tokens: Annotated[int, typer.Option(help="Do not end before so many tokens.")] = 0,
    schema: Annotated[Path | None, typer.Option(help="Write JSON by the JSON schema in this file.")] = None,
    regex: Annotated[str | None, typer.Option(help="Write text that this expression matches whole.")] = None,
    grammar: Annotated[Path | None, typer.Option(help="Write text by the Lark grammar in this file.")] = None,
    verification: Annotated[
        str,
        typer.Option(
            help="The rule that accepts guesses: auto, token, block, ...; with coupled and a seed the "
            "text is that of plain decoding."
        ),
    ] = "auto",
    lenience: Annotated[
        float,
        typer.Option(
            help="Below 1, and with --verification lenient: faster, and NOT the target's distribution."
        ),
    ] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Same seed and options, same tokens.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End at this text; may be repeated.")] = None,
    chat: ChatOption = None,
    engine: EngineOption = EngineName.AUTO,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    logprobs: Annotated[
        int | None,
        typer.Option(help="With --json or --prompts: log-probabilities, with N alternatives.", metavar="N"),
    ] = None,
    num_samples: Annotated[
        int, typer.Option("--num-samples", "-n", min=1, help="Outputs for each prompt, which is read once.")
    ] = 1,
    prompts: Annotated[
        Path | None,
        typer.Option(help="Answer a JSONL file: on each line a prompt or messages, and options of its own."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the answers to --prompts here; what is there already is not done again."),
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, help="How many outputs are generated together; for --engine torch.")
    ] = 1,
    compare: Annotated[
        bool, typer.Option("--compare", help="Also decode plainly and print the ratio.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Generate text from a prompt, with the target's own distribution."""
    from draftwise.cli.lines import read_requests
    from draftwise.decoding import stream
    from draftwise.drafters.prompt_lookup import PromptLookup
    from draftwise.prompt import encode_prompt
    from draftwise.request import Request
    from draftwise.sampling import SamplingParams
    from draftwise.types import Generation

    # What can be refused without a model is refused before one is loaded.
    asked_tokens = draft_tokens(num_draft_tokens)
    sampling = SamplingParams(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        typical_p=typical_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        logit_bias=logit_biases(logit_bias or ()),
        banned=banned(ban or ()),
        min_new_tokens=min_new_tokens,
        grammar=chosen_grammar(schema, regex, grammar),
    )
    stop_strings = tuple(stop or ())
    options = DrafterOptions(corpus, exit_layer, skip_layers, tree)
    wanted = chosen_drafter(drafter, draft_model, ngram, heads, options)
    if prompts is not None and (prompt is not None or file is not None or compare):
        raise OptionError("--prompts goes with no other prompt and not with --compare.")
    if out is not None and prompts is None:
        raise OptionError("--out is where the answers to --prompts go; give both.")
    if batch_size != 1 and prompts is None:
        raise OptionError("--batch-size goes with --prompts; leave it out for one.")
    if num_samples > 1 and compare:
        raise OptionError("--compare is of one output; leave out --num-samples.")
    if logprobs is not None and not (as_json or prompts):
        raise OptionError("--logprobs goes with --json or --prompts.")
    asked = Request(
        prompt_text(prompt, file) if prompts is None else "",
        sampling=sampling,
        max_new_tokens=max_new_tokens,
        stop=stop_strings,
        verification=verification,
        lenience=lenience,
        seed=seed,
        logprobs=logprobs,
    )
    requests = [asked] if prompts is None else read_requests(prompts, asked)
    answers = (
        Texts()
        if prompts is None and not as_json
        else Answers(out, requests, target, chat, num_samples, engine, dtype)
    )

    load_model = Loader(engine_for(engine, [wanted]), dtype, device, threads, trust_remote_code)
    model = load_model(target, states_read([wanted]))
    guesser = make_drafter(wanted, model, load_model)
    # Where no way to guess is named, lookup is at hand too: it costs nothing, and may be what pays best.
    beside = [PromptLookup()] if drafter is None and wanted.name is not DrafterName.LOOKUP else []
    drafters = [*beside, guesser] if asked_tokens == AUTO else [guesser]
    requests = [replace(request, prompt=as_prompt(request.prompt, chat, model)) for request in requests]
    if prompts is not None or num_samples > 1:
        answer_all(
            model,
            requests,
            answers,
            num_samples=num_samples,
            max_rows=num_samples if prompts is None else batch_size,
            drafter=drafters,
            num_draft_tokens=asked_tokens,
        )
        keep_corpus(guesser, options, model.tokenizer)
        return
    prompt_ids = encode_prompt(model, requests[0].prompt)

    def steps(using: "Sequence[Drafter]", num_tokens: int = max_new_tokens) -> "Iterator[Step]":
        return stream(
            model,
            prompt_ids,
            drafter=using,
            sampling=sampling,
            max_new_tokens=num_tokens,
            num_draft_tokens=asked_tokens,
            stop=stop_strings,
            verification=verification,
            lenience=lenience,
            seed=seed,
            logprobs=logprobs,
        )

    if compare:  # first a few tokens each, so that neither side pays for what happens only once
        for using in (drafters, []):
            warm_up = max(min_new_tokens, min(WARM_UP_TOKENS, max_new_tokens))
            Generation.of(steps(using, warm_up), len(prompt_ids))
    show = iter if as_json else report.coloured if sys.stdout.isatty() else report.plain
    generation = Generation.of(show(steps(drafters)), len(prompt_ids))
    keep_corpus(guesser, options, model.tokenizer)
    baseline = Generation.of(steps([]), len(prompt_ids)) if compare else None
    if as_json:
        printed = {**report.as_object(generation, baseline), "width_invariant": model.width_invariant}
        print(json.dumps(printed, ensure_ascii=False))
    else:
        # The closing lines are no part of the text that a pipe takes.
        closing = sys.stdout if sys.stdout.isatty() else sys.stderr
        print(report.summary(generation), file=closing)
        if baseline:
            line = report.comparison(
                generation,
                baseline,
                is_greedy=temperature == 0,
                is_exact=lenience == 1,
                width_invariant=model.width_invariant,
            )
            print(line, file=closing)
