"""Adaptive drafting against plain decoding and the best fixed choice, by family, hopeless ones included.

    python benchmarks/never_slower.py --data DIR [--target MODEL] [--draft-model MODEL] [--family NAME ...]

Each prompt is decoded in turn plainly, with num_draft_tokens="auto", and with each fixed drafter and number
of draft tokens. A prompt's seconds a token are the median of its rounds, with the drafter's reading of the
prompt and without the target's, and a family's the mean of its prompts'. `plain`: auto's speed over that of
plain decoding in the same mode; `width_1`: over plain decoding in passes of width 1, which give up the same
bits at every width; `best_fixed`: over the fixed choice that was fastest for the family, known in hindsight;
`oracle`: over auto's own drafts, had it known how many tokens of each would be accepted (2211.17192, section
3.5); each with its worst and mean over the families. Prints one JSON object.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from statistics import mean, median
from typing import Literal

from draftwise import generate, load
from draftwise.control.cost import CostModel
from draftwise.control.oracle import oracle_seconds
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.models.base import LanguageModel
from draftwise.sampling import SamplingParams
from draftwise.types import Generation
from measuring import Messages, chat, family_prompts

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
# By the length of the match, as the best of hand-made rules have it.
STAIRCASE = ((1, 1), (2, 3), (4, 5), (6, 7), (10, 11))
Decode = Callable[[Messages, float], Generation]


def seconds_a_token(generation: Generation) -> float:
    """After the pass that reads the prompt, all drafting included."""
    seconds = generation.seconds.total - generation.steps[0].seconds.verify
    return seconds / (len(generation.token_ids) - 1)


def oracle_seconds_a_token(generation: Generation, costs: CostModel) -> float:
    """The same, had every draft been as long as it was right."""
    verify = costs.verify(generation.num_prompt_tokens)
    saved = generation.seconds.total - oracle_seconds(generation.steps, verify)
    return seconds_a_token(generation) - saved / (len(generation.token_ids) - 1)


def random_words(count: int) -> list[Messages]:
    """Prompts that nothing can be guessed from."""
    random = Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(random.choices(letters, k=random.randint(2, 9))) for _ in range(60 * count)]
    return [chat(" ".join(words[60 * i : 60 * (i + 1)])) for i in range(count)]


def ways(
    target: LanguageModel, draft_model: LanguageModel | None, numbers: list[int], max_new_tokens: int
) -> dict[str, Decode]:
    """The ways to decode that are compared, by name."""

    def way(drafters: list[Drafter], number: int | Literal["auto"], width_invariant: bool = True) -> Decode:
        return lambda prompt, temperature: generate(
            target,
            prompt,
            drafter=drafters,
            num_draft_tokens=number,
            sampling=SamplingParams(temperature),
            max_new_tokens=max_new_tokens,
            ignore_eos=True,
            width_invariant=width_invariant,
        )

    lookup, drafting = PromptLookup(), [DraftModel(draft_model)] if draft_model else []
    return {
        "plain": way([], 0),
        "width 1": way([], 0, width_invariant=False),
        "auto": way([lookup, *drafting], "auto"),
        **{f"lookup, {number}": way([lookup], number) for number in numbers},
        "lookup by match length": way([PromptLookup(STAIRCASE)], 11),
        **{f"{each.name}, {number}": way([each], number) for each in drafting for number in (2, 4)},
    }


def best_fixed(seconds: Mapping[str, float]) -> str:
    """The fixed way, plain decoding included, with the fewest seconds a token."""
    return min(seconds.keys() - {"width 1", "auto", "oracle"}, key=lambda way: seconds[way])


def compared(seconds: Mapping[str, float]) -> dict[str, float]:
    """The speed of auto over that of others, from seconds a token by way."""
    others = {"plain": "plain", "width_1": "width 1", "best_fixed": best_fixed(seconds), "oracle": "oracle"}
    return {name: round(seconds[way] / seconds["auto"], 3) for name, way in others.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--target", default="smollm2-135m-instruct")
    parser.add_argument("--draft-model")
    parser.add_argument("--family", action="append", help="only these; the default is all")
    parser.add_argument("--numbers", type=int, nargs="+", default=[1, 2, 3, 5, 8])
    parser.add_argument("--prompts", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-new-tokens", type=int, default=96)
    options = parser.parse_args()
    target = load(options.target, engine="onnx")
    draft_model = load(options.draft_model, engine="onnx") if options.draft_model else None
    cases = {
        **{name: (family_prompts(options.data, name, options.prompts), 0.0) for name in FAMILIES},
        "random words": (random_words(options.prompts), 0.0),
        "temperature 1.5": (family_prompts(options.data, "writing", options.prompts), 1.5),
    }
    compare = ways(target, draft_model, options.numbers, options.max_new_tokens)
    warming = ways(target, draft_model, options.numbers, 4)
    costs = CostModel.measured(target, [PromptLookup()], constant=True)
    medians: dict[str, dict[str, float]] = {}
    for name in options.family or cases:
        prompts, temperature = cases[name]
        for decode in warming.values():  # what happens only once, the profile too, happens here
            decode(prompts[0], temperature)
        seconds: dict[str, list[list[float]]] = {way: [[] for _ in prompts] for way in (*compare, "oracle")}
        for turn in range(options.rounds):
            for place, prompt in enumerate(prompts):
                for way, decode in list(compare.items())[:: 1 if turn % 2 else -1]:
                    generation = decode(prompt, temperature)
                    seconds[way][place].append(seconds_a_token(generation))
                    if way == "auto":
                        seconds["oracle"][place].append(oracle_seconds_a_token(generation, costs))
        medians[name] = {way: mean(median(rounds) for rounds in each) for way, each in seconds.items()}
    ratios = {name: compared(seconds) for name, seconds in medians.items()}
    report: dict[str, object] = {
        against: {
            "worst": min(ratio[against] for ratio in ratios.values()),
            "mean": round(mean(ratio[against] for ratio in ratios.values()), 3),
        }
        for against in ("plain", "width_1", "best_fixed", "oracle")
    }
    report["families"] = {
        name: {
            **ratios[name],
            "best": best_fixed(seconds),
            "tokens_a_second": {way: round(1 / each, 1) for way, each in seconds.items()},
        }
        for name, seconds in medians.items()
    }
    print(json.dumps({"target": target.name, **report}, indent=1))


if __name__ == "__main__":
    main()
