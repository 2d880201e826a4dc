"""Whether a row of a batch is written as it is alone: greedy and sampled, each with settings of its own.

    python benchmarks/alone.py --data DATA [--target MODEL] [--prompts 16] [--rows 8] [--new-tokens 64]

`DATA` holds the public prompt files. Prompts of different families and lengths, under different sampling
settings and seeds, are decoded with lookup in batches that rows join as others leave, and each by itself,
once with lookup and once plainly. Prints one JSON object: rows whose tokens differ, and for each of them
where, and how far apart the target's two likeliest tokens are there.
"""

import argparse
import json
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from draftwise import LanguageModel, PromptLookup, SamplingParams, generate, generate_batch, load
from draftwise.drafters.base import Drafter
from draftwise.prompt import encode_prompt
from draftwise.request import Request
from measuring import family_prompts

FAMILIES = ("writing", "summarization", "qa", "math_reasoning", "code_editing", "humaneval", "translation")
SETTINGS = (
    SamplingParams(),
    SamplingParams(0.8, top_p=0.95),
    SamplingParams(1.0),
    SamplingParams(repetition_penalty=1.1),
    SamplingParams(1.2, top_k=40, frequency_penalty=0.3),
)


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """The index of the first token that differs, None where there is none."""
    pairs = enumerate(zip_longest(ours, theirs))
    return next((at for at, (one, other) in pairs if one != other), None)


def compared(
    target: LanguageModel, requests: list[Request], together: list[tuple[int, ...]], drafter: list[Drafter]
) -> list[dict[str, object]]:
    """The rows that differ from what they are alone, with the gap of the logits where they part."""
    differing: list[dict[str, object]] = []
    for number, (request, tokens) in enumerate(zip(requests, together, strict=True)):
        options = {name: getattr(request, name) for name in ("sampling", "max_new_tokens", "seed")}
        alone = generate(target, request.prompt, drafter=drafter, logprobs=2, **options)
        at = first_difference(alone.token_ids, tokens)
        if at is not None:
            assert alone.logprobs is not None
            (_, first), (_, second) = alone.logprobs[min(at, len(alone.logprobs) - 1)].top
            gap = first - second
            differing.append({"row": number, "at": at, "gap": round(gap, 6)})
    return differing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--target", default="smollm2-135m-instruct")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=64)
    options = parser.parse_args()
    target = load(options.target, engine="torch")
    prompts = [
        encode_prompt(target, family_prompts(options.data, FAMILIES[number % len(FAMILIES)], number + 1)[-1])
        for number in range(options.prompts)
    ]
    requests = [
        Request(
            prompt[-64 - 16 * number :],
            sampling=SETTINGS[number % len(SETTINGS)],
            max_new_tokens=options.new_tokens - number,
            seed=number,
        )
        for number, prompt in enumerate(prompts)
    ]
    report: dict[str, object] = {"target": target.name, "rows": len(requests)}
    ways: dict[str, list[Drafter]] = {"lookup": [PromptLookup()], "plain": []}
    for name, drafter in ways.items():
        generations = generate_batch(target, requests, max_rows=options.rows, drafter=drafter)
        together = [generation.token_ids for generation in generations]
        report[name] = {
            "tokens": sum(map(len, together)),
            "differing": compared(target, requests, together, drafter),
        }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
