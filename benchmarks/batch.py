"""Decoding throughput by batch size, plain and speculative. Prints one JSON object.

    python benchmarks/batch.py --data DATA [--target MODEL] [--sizes 1,4,8,16] [--rounds 3] [--new-tokens 32]

`DATA` holds the public prompt files. The rows of a batch are different prompts of one family, cut to the same
length; in each round plain decoding and lookup take turns, with the drafts of its own length and with as many
as pay. Measured are the steps after the one that reads the prompts, in which every row is under way to the
last. The ratios are those of one round, the medians are over rounds.
"""

import argparse
import json
from pathlib import Path
from statistics import median
from time import perf_counter

from draftwise import DraftModel, PromptLookup, load
from draftwise.batch import Batch
from draftwise.drafters.base import Drafter
from draftwise.models.base import LanguageModel
from draftwise.prompt import encode_prompt
from draftwise.request import Request
from measuring import family_prompts, summary

PLAIN = "plain"


def throughput(
    target: LanguageModel, prompts: list[list[int]], drafter: Drafter | None, auto: bool, new_tokens: int
) -> tuple[float, float]:
    """Tokens a second of all rows together, and tokens a row and pass, while all rows are under way."""
    max_length = max(map(len, prompts)) + new_tokens
    tokens = passes = 0
    with Batch(
        target, len(prompts), max_length, drafter=drafter, num_draft_tokens="auto" if auto else None
    ) as batch:
        for prompt in prompts:
            request = Request(prompt, max_new_tokens=new_tokens, ignore_eos=True)
            batch.add(request.sequence(target))
        batch.step()
        start = end = perf_counter()
        while not batch.free_rows:
            tokens += sum(len(step.emitted) for step in batch.step())
            passes += 1
            end = perf_counter()
    return tokens / (end - start), tokens / passes / len(prompts)


def measure(
    target: LanguageModel, prompts: list[list[int]], drafter: Drafter, rounds: int, new_tokens: int
) -> dict[str, object]:
    settings: dict[str, tuple[Drafter | None, bool]] = {
        PLAIN: (None, False),
        drafter.name: (drafter, False),
        f"{drafter.name}, auto": (drafter, True),
    }
    speeds: dict[str, list[float]] = {name: [] for name in settings}
    lengths: dict[str, list[float]] = {name: [] for name in settings}
    for _ in range(rounds):
        for name, (using, auto) in settings.items():
            speed, length = throughput(target, prompts, using, auto, new_tokens)
            speeds[name].append(speed)
            lengths[name].append(length)
    return {
        name: {
            "tokens_per_second": summary(speeds[name]),
            "ratio_to_plain": summary(
                speed / plain for speed, plain in zip(speeds[name], speeds[PLAIN], strict=True)
            ),
            "tokens_per_pass": round(median(lengths[name]), 3),
        }
        for name in settings
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--target", default="smollm2-135m-instruct")
    parser.add_argument("--draft-model")
    parser.add_argument("--family", default="code_editing")
    parser.add_argument("--sizes", default="1,4,8,16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt-tokens", type=int, default=192)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--device")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    target = load(options.target, engine="torch", device=options.device)
    drafter: Drafter = PromptLookup()
    if options.draft_model:
        drafter = DraftModel(load(options.draft_model, engine="torch", device=options.device))
    texts = family_prompts(options.data, options.family, max(sizes))
    prompts = [encode_prompt(target, text)[-options.prompt_tokens :] for text in texts]
    found = {
        size: measure(target, prompts[:size], drafter, options.rounds, options.new_tokens) for size in sizes
    }
    print(json.dumps({"target": options.target, "family": options.family, "sizes": found}))


if __name__ == "__main__":
    main()
