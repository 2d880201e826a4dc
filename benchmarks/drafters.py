"""Every drafter: tokens a pass, its cost and the speed. Prints one JSON object.

    python benchmarks/drafters.py --data FOLDER --model MODEL [--engine torch] [--families summarization,qa]
        [--draft-model SMALLER] [--drafters lookup,suffix] [--auto] [--prompts 3] [--max-new-tokens 128]
    python benchmarks/drafters.py --data FOLDER --model MODEL --long [--context 32000]

The first form decodes the prompts of each family greedily; `self-*` drafters need the torch engine, and
`draft-model`, `tli` and `slem`, which have to be named, a draft model: the last two one of any tokenizer. The
order of drafters is turned round from prompt to prompt. The second form puts prompts end to end and measures
single proposals at the end of a long context, in microseconds, and the bytes that a drafter holds for each
token.
"""

import argparse
import gc
import json
import sys
import tracemalloc
from collections.abc import Callable, Mapping
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from draftwise import (
    Corpus,
    Drafter,
    DraftModel,
    InputCopy,
    LanguageModel,
    NoDrafter,
    OnlineNgramModel,
    PromptLookup,
    SamplingParams,
    SelfSpeculation,
    Several,
    Suffix,
    TextDraftModel,
    TokenRecycling,
    TranslatedModel,
    generate,
    load,
)
from draftwise.control.base import UpTo
from draftwise.planning.prompts import read_prompts
from draftwise.randomness import Streams
from draftwise.sampling import Sampler
from measuring import family_prompts, summary

FAMILIES = (
    "code_editing",
    "humaneval",
    "summarization",
    "rag",
    "math_reasoning",
    "qa",
    "translation",
    "writing",
)
Maker = Callable[[Any], Drafter]

MODEL_FREE: Mapping[str, Maker] = {
    "none": lambda model: NoDrafter(),
    "lookup": lambda model: PromptLookup(),
    "suffix": lambda model: Suffix(),
    "suffix-with-corpus": lambda model: Suffix(Corpus()),
    "copy": lambda model: InputCopy(),
    "ngram-online": lambda model: OnlineNgramModel(model.vocab_size).drafter(),
    "recycling": lambda model: TokenRecycling(),
    "lookup-then-recycling": lambda model: Several(
        [PromptLookup([(2, 3), (4, 5), (6, 7), (10, 11)]), TokenRecycling()]
    ),
}
SELF: Mapping[str, Maker] = {
    "self-exit-half": lambda model: SelfSpeculation(model, exit_layer=model.num_layers // 2),
    "self-exit-90": lambda model: SelfSpeculation(model, exit_layer=round(model.num_layers * 0.9)),
    "self-skip-sixth": lambda model: SelfSpeculation(
        model, skip_layers=range(model.num_layers // 3, 2 * model.num_layers // 3, 2), num_draft_tokens=3
    ),
    "self-skip-sixth-with-lookup": lambda model: Several(
        [
            PromptLookup([(4, 5), (6, 7), (10, 11)]),
            SelfSpeculation(
                model,
                skip_layers=range(model.num_layers // 3, 2 * model.num_layers // 3, 2),
                num_draft_tokens=3,
            ),
        ]
    ),
}
ALL = {**MODEL_FREE, **SELF}
DRAFTING: Mapping[str, Callable[[LanguageModel, LanguageModel], Drafter]] = {
    "draft-model": lambda target, draft_model: DraftModel(draft_model, num_draft_tokens=2),
    "tli": lambda target, draft_model: DraftModel(TranslatedModel(draft_model, target), num_draft_tokens=2),
    "slem": lambda target, draft_model: TextDraftModel(draft_model, num_draft_tokens=2),
}


def by_family(options: argparse.Namespace) -> dict[str, Any]:
    """Greedy decoding of some prompts of each family, with each drafter."""
    model = load(options.model, engine=options.engine, threads=options.threads)
    is_torch = options.engine == "torch"
    names = options.drafters.split(",") if options.drafters else list(ALL if is_torch else MODEL_FREE)
    drafters = {name: ALL[name](model) for name in names if name in ALL}
    if options.draft_model:
        draft_model = load(options.draft_model, engine=options.engine, threads=options.threads)
        drafters |= {name: DRAFTING[name](model, draft_model) for name in names if name in DRAFTING}
    families = {}
    numbers: dict[str, Literal["auto"] | int] = {
        name: "auto" if options.auto else drafter.default_num_draft_tokens
        for name, drafter in drafters.items()
    }
    for name, drafter in drafters.items():  # what happens only once happens here
        generate(model, [1, 2, 3], drafter=drafter, num_draft_tokens=numbers[name], max_new_tokens=8)
    for family in options.families.split(","):
        made: dict[str, list[Any]] = {name: [] for name in names}
        for number, prompt in enumerate(family_prompts(options.data, family, options.prompts)):
            for name in names[:: -1 if number % 2 else 1]:
                made[name].append(
                    generate(
                        model,
                        prompt,
                        drafter=drafters[name],
                        num_draft_tokens=numbers[name],
                        max_new_tokens=options.max_new_tokens,
                    )
                )
        families[family] = {name: figures(generations) for name, generations in made.items()}
        print(
            family,
            {name: row["tokens_a_pass"] for name, row in families[family].items()},
            flush=True,
            file=sys.stderr,
        )
    return {"model": options.model, "engine": options.engine, "families": families}


def figures(generations: list[Any]) -> dict[str, Any]:
    """Of some finished sequences; the pass that reads the prompt is left out."""
    steps = [step for generation in generations for step in generation.steps[1:]]
    tokens = sum(len(step.emitted) for step in steps)
    drafted = sum(len(step.drafted) for step in steps)
    seconds = sum(step.seconds.total for step in steps)
    draft_seconds = sum(step.seconds.draft for step in steps)
    return {
        "tokens_a_pass": round(tokens / len(steps), 3),
        "drafted_a_pass": round(drafted / len(steps), 3),
        "accepted_share": round(sum(step.num_accepted for step in steps) / drafted, 3) if drafted else None,
        "drafting_ms_a_pass": round(1e3 * draft_seconds / len(steps), 4),
        "drafting_share": round(draft_seconds / seconds, 4),
        "tokens_a_second": round(tokens / seconds, 2),
    }


def at_length(options: argparse.Namespace) -> dict[str, Any]:
    """Single proposals at the end of a long context, and memory."""
    model = load(options.model, engine=options.engine, threads=options.threads)
    assert model.tokenizer is not None
    text = "\n\n".join(prompt.text for prompt in read_prompts(options.data / "spec_bench_even.jsonl"))
    token_ids = model.tokenizer.encode(text)
    token_ids = (token_ids * (1 + options.context // len(token_ids)))[: options.context]
    figures = {
        name: long_figures(MODEL_FREE[name](model), model, token_ids)
        for name in ("lookup", "suffix", "suffix-with-corpus", "copy", "recycling")
    }
    return {
        "model": options.model,
        "context": len(token_ids),
        "drafters": figures,
        "corpus_bytes_a_token": round(held(lambda: Corpus.of([token_ids[:8000]], 1 << 20)) / 8000, 1),
    }


def long_figures(
    drafter: Drafter, model: LanguageModel, token_ids: list[int], proposals: int = 500
) -> dict[str, Any]:
    """Proposals after each of the last tokens; bytes a token of a state that has read them all."""
    most = drafter.default_num_draft_tokens
    if isinstance(drafter, Suffix) and drafter.learn:
        drafter.corpus.add(token_ids[: len(token_ids) // 2])
    if isinstance(drafter, TokenRecycling):
        drafter.candidates.update({token_id: (after,) for token_id, after in pairwise(token_ids)})
    random = [Streams.seeded(0).drafting]

    def propose(state: Any, context: list[int]) -> int:
        return len(state.propose([context], [UpTo(most)], [Sampler(SamplingParams())], random)[0])

    def reading() -> Any:
        state = drafter.open(model, 1, len(token_ids) + 1)
        propose(state, token_ids)
        return state

    microseconds, drafted = [], 0
    with closing(drafter.open(model, 1, len(token_ids) + 1)) as state:
        context = token_ids[:-proposals]
        propose(state, context)
        for token_id in token_ids[-proposals:]:
            context.append(token_id)
            start = perf_counter()
            drafted += propose(state, context)
            microseconds.append(1e6 * (perf_counter() - start))
    return {
        "microseconds": {
            **summary(microseconds),
            "p99": round(sorted(microseconds)[int(0.99 * proposals)], 2),
        },
        "drafted_a_proposal": round(drafted / proposals, 2),
        "bytes_a_token": round(held(reading) / len(token_ids), 1),
    }


def held(make: Callable[[], object]) -> int:
    """Bytes that what is made holds."""
    gc.collect()
    tracemalloc.start()
    made = make()
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del made
    return size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder with the public prompt files")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--engine", default="onnx", choices=("onnx", "torch"))
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--drafters", help=f"some of {', '.join([*ALL, *DRAFTING])}")
    parser.add_argument("--draft-model")
    parser.add_argument(
        "--auto", action="store_true", help="as many tokens as pay; the default is each's own"
    )
    parser.add_argument("--prompts", type=int, default=3)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--context", type=int, default=32_000)
    options = parser.parse_args()
    print(json.dumps(at_length(options) if options.long else by_family(options), indent=1))


if __name__ == "__main__":
    main()
