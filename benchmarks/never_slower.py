"""Adaptive drafting against plain decoding, by family, hopeless ones included. Prints one JSON object.

    python benchmarks/never_slower.py --data DIR [--target MODEL] [--draft-model MODEL] [--family NAME ...]

Each prompt is decoded plainly and with num_draft_tokens="auto" in turn. A figure is seconds a token of plain
over those of auto, the drafter's reading of the prompt included and the target's left out; a family's is the
median over its prompts and rounds, and `worst` and `mean` are over families. Plain is plain decoding in the
same mode.
"""

import argparse
import json
from pathlib import Path
from random import Random

from draftwise import generate, load
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.sampling import SamplingParams
from draftwise.types import Generation
from measuring import Messages, chat, family_prompts, summary

FAMILIES = (
    "code_editing",
    "humaneval",
    "summarization",
    "rag",
    "qa",
    "translation",
    "math_reasoning",
    "writing",
)


def seconds_a_token(generation: Generation) -> float:
    """After the pass that reads the prompt, all drafting included."""
    seconds = generation.seconds.total - generation.steps[0].seconds.verify
    return seconds / (len(generation.token_ids) - 1)


def random_words(count: int) -> list[Messages]:
    """Prompts that nothing can be guessed from."""
    random = Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(random.choices(letters, k=random.randint(2, 9))) for _ in range(60 * count)]
    return [chat(" ".join(words[60 * i : 60 * (i + 1)])) for i in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--target", default="smollm2-135m-instruct")
    parser.add_argument("--draft-model")
    parser.add_argument("--family", action="append", help="only these; the default is all")
    parser.add_argument("--prompts", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-new-tokens", type=int, default=96)
    options = parser.parse_args()
    target = load(options.target, engine="onnx")
    drafters: list[Drafter] = [PromptLookup(draft_lengths=[(1, 32)])]
    if options.draft_model:
        drafters.append(DraftModel(load(options.draft_model, engine="onnx")))
    cases = {
        **{name: (family_prompts(options.data, name, options.prompts), 0.0) for name in FAMILIES},
        "random words": (random_words(options.prompts), 0.0),
        "temperature 1.5": (family_prompts(options.data, "writing", options.prompts), 1.5),
    }
    ratios = {}
    for name, (prompts, temperature) in cases.items():
        if options.family and name not in options.family:
            continue
        seen = []
        for prompt in prompts:
            for turn in range(options.rounds + 1):
                plain, auto = (
                    generate(
                        target,
                        prompt,
                        drafter=using,
                        num_draft_tokens="auto" if using else 0,
                        sampling=SamplingParams(temperature),
                        max_new_tokens=options.max_new_tokens,
                        ignore_eos=True,
                    )
                    for using in ((), drafters)
                )
                if turn:  # the first is not counted
                    seen.append(seconds_a_token(plain) / seconds_a_token(auto))
        ratios[name] = summary(seen)
    medians = [ratio["median"] for ratio in ratios.values()]
    report = {"worst": min(medians), "mean": sum(medians) / len(medians), "families": ratios}
    print(json.dumps({"target": target.name, **report}, indent=1))


if __name__ == "__main__":
    main()
