"""Adaptive drafting against plain decoding and the best fixed choice, by family, hopeless ones included.

    python benchmarks/never_slower.py --data DIR [--target MODEL] [--draft-model MODEL] [--family NAME ...]

Each prompt is decoded plainly, with num_draft_tokens="auto", and with each fixed drafter and number of draft
tokens, all abreast: whichever is furthest behind takes the next step. Seconds a token are of all that a call
does, the drafter's reading of the prompt too, but the target's reading of it; a family's in one round the
mean of its prompts', and each ratio the median of those of the rounds. `plain`: auto's speed over that of
plain decoding in the same mode; `width_1`: over plain decoding in passes of width 1, which give up the same
bits at every width; `best_fixed`: over the drafter and constant number that is fastest for the family, known
in hindsight; `match_rule`: over prompt lookup with a table of numbers by the length of the match, made by
hand; `oracle`: over auto's own drafts, had it known how many tokens of each would be accepted (2211.17192,
section 3.5); each with its worst and mean over the families.
Where text is sampled each round has its seed, so that all but a draft model write the same text, as far as
width 1 has the same bits; and auto goes by costs as they were measured. Prints one JSON object.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Rows
from functools import partial
from operator import truediv
from pathlib import Path
from random import Random
from statistics import mean, median, mode

from draftwise import load, stream
from draftwise.control.cost import CostModel
from draftwise.control.oracle import oracle_seconds
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.models.base import LanguageModel
from draftwise.sampling import SamplingParams
from draftwise.types import Step
from hand_made import Number, by_match_length
from measuring import Messages, Text, abreast, chat, family_prompts

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
RULE = "lookup by match length"
APART = ("width 1", RULE, "oracle")  # no constant choices
AGAINST = {"plain": "plain", "width_1": "width 1", "match_rule": RULE, "oracle": "oracle"}
Decode = Callable[[Messages, float, int], Iterator[Step]]


def with_the_oracle(auto: Text, costs: CostModel) -> Text:
    """Auto's text, had every draft been as long as it was right."""
    verify = costs.verify(auto.steps[0].num_fed)
    saved = sum(step.seconds.total for step in auto.steps) - oracle_seconds(auto.steps, verify)
    return Text(auto.steps, auto.seconds - saved)


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

    def way(drafters: list[Drafter], number: Number, width_invariant: bool = True) -> Decode:
        return lambda prompt, temperature, seed: stream(
            target,
            prompt,
            drafter=drafters,
            num_draft_tokens=number,
            sampling=SamplingParams(temperature),
            seed=seed if temperature else None,
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
        RULE: way(*by_match_length()),
        **{f"{each.name}, {number}": way([each], number) for each in drafting for number in (2, 4)},
    }


def best_fixed(seconds: Mapping[str, Rows[float]]) -> list[str]:
    """For each round the constant choice, plain decoding included, that was fastest in the other rounds.

    The fastest of several in the same round would be the luckiest too, and auto is measured but once.
    """
    constant = [way for way in seconds if way not in (*APART, "auto")]
    num_rounds = len(seconds["auto"])
    return [
        min(constant, key=lambda way: sum(seconds[way]) - (seconds[way][turn] if num_rounds > 1 else 0.0))
        for turn in range(num_rounds)
    ]


def compared(seconds: Mapping[str, Rows[float]]) -> dict[str, float]:
    """The speed of auto over that of others, from a family's seconds a token by way and round."""
    best = [seconds[way][turn] for turn, way in enumerate(best_fixed(seconds))]
    others = {name: seconds[way] for name, way in AGAINST.items()} | {"best_fixed": best}
    return {name: round(median(map(truediv, theirs, seconds["auto"])), 3) for name, theirs in others.items()}


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
    measured: dict[str, dict[str, list[float]]] = {}
    for name in options.family or cases:
        prompts, temperature = cases[name]
        for decode in warming.values():  # what happens only once, the profile too, happens here
            list(decode(prompts[0], temperature, 0))
        seconds: dict[str, list[list[float]]] = {way: [[] for _ in prompts] for way in (*compare, "oracle")}
        for turn in range(options.rounds):
            for place, prompt in enumerate(prompts):
                texts = abreast(
                    {way: partial(decode, prompt, temperature, turn) for way, decode in compare.items()}
                )
                texts["oracle"] = with_the_oracle(texts["auto"], costs)
                for way, text in texts.items():
                    seconds[way][place].append(text.seconds_a_token)
        measured[name] = {
            way: [mean(turn) for turn in zip(*each, strict=True)] for way, each in seconds.items()
        }
    ratios = {name: compared(seconds) for name, seconds in measured.items()}
    report: dict[str, object] = {
        against: {
            "worst": min(ratio[against] for ratio in ratios.values()),
            "mean": round(mean(ratio[against] for ratio in ratios.values()), 3),
        }
        for against in (*AGAINST, "best_fixed")
    }
    report["families"] = {
        name: {
            **ratios[name],
            "best": mode(best_fixed(seconds)),
            "tokens_a_second": {way: round(1 / median(rounds), 1) for way, rounds in seconds.items()},
        }
        for name, seconds in measured.items()
    }
    print(json.dumps({"target": target.name, **report}, indent=1))


if __name__ == "__main__":
    main()
