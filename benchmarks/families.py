"""Adaptive drafting by family, with prompt lookup and a draft model at hand, abreast of plain decoding.

    python benchmarks/families.py --data DIR [--target MODEL] [--draft-model MODEL] [--family NAME ...]

Greedy. Whichever way is furthest behind takes the next step. Beside auto there are two rules made by hand:
prompt lookup with a number of tokens by the length of the match, and the same where it is long, with three
tokens of the draft model elsewhere. Tokens a second are of all that a call does but the target's reading of
the prompt; `ratios` are auto's over those of plain decoding, text by text, and `over` are their means, over
the rules too. `same` says whether every output was that of plain decoding, token for token. Prints one JSON
object.
"""

import argparse
import json
from collections.abc import Iterator
from functools import partial
from operator import truediv
from pathlib import Path
from statistics import mean

from draftwise import load, stream
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.models.base import LanguageModel
from draftwise.types import Step
from hand_made import Way, by_match_length, or_three_of
from measuring import Messages, abreast, chat, family_prompts


def bug_fixing(data: Path, count: int) -> list[Messages]:
    """Functions with a bug, docstring and all."""
    return [
        chat(
            "There is a bug in this function. Reply with the whole function, corrected, and nothing else.\n\n"
            f"```python\n{each['prompt']}{each['buggy_solution']}```"
        )
        for each in functions(data)[:count]
    ]


def refactoring(data: Path, count: int) -> list[Messages]:
    """Files of four functions, one of which is to have another name."""
    files = [functions(data)[4 * n : 4 * n + 4] for n in range(count)]
    return [
        chat(
            f"Rename the function {file[0]['entry_point']} to compute in this file. Reply with the whole "
            "file and nothing else.\n\n```python\n"
            + "\n\n".join(each["prompt"] + each["canonical_solution"] for each in file)
            + "```"
        )
        for file in files
    ]


def functions(data: Path) -> list[dict[str, str]]:
    lines = (data / "humanevalpack_python_even.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


OWN = {"bug_fixing": bug_fixing, "refactoring": refactoring}
FAMILIES = ("bug_fixing", "humaneval", "refactoring", "summarization", "math_reasoning")


def prompts_of(data: Path, family: str, count: int) -> list[Messages]:
    return OWN[family](data, count) if family in OWN else family_prompts(data, family, count)


def decoding(target: LanguageModel, prompt: Messages, way: Way, max_new_tokens: int) -> Iterator[Step]:
    drafters, number = way
    return stream(
        target,
        prompt,
        drafter=drafters,
        num_draft_tokens=number,
        max_new_tokens=max_new_tokens,
        ignore_eos=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--target", default="smollm2-135m-instruct")
    parser.add_argument("--draft-model")
    parser.add_argument("--family", action="append", choices=FAMILIES, help="only these; the default is all")
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    options = parser.parse_args()
    target = load(options.target, engine="onnx")
    draft_model = load(options.draft_model, engine="onnx") if options.draft_model else None
    drafting = [DraftModel(draft_model)] if draft_model else []
    ways: dict[str, Way] = {
        "plain": ([], 0),
        "auto": ([PromptLookup(), *drafting], "auto"),
        "lookup by match length": by_match_length(),
    }
    if draft_model:
        ways["or three of the draft model"] = or_three_of(draft_model)
    for way in ways.values():  # what happens only once, the profile too, happens here
        list(decoding(target, chat("Say yes."), way, 8))
    report: dict[str, object] = {}
    for family in options.family or FAMILIES:
        taken: dict[str, list[float]] = {name: [] for name in ways}
        tokens_a_pass, same = [], True
        for prompt in prompts_of(options.data, family, options.prompts) * options.rounds:
            texts = abreast(
                {
                    name: partial(decoding, target, prompt, way, options.max_new_tokens)
                    for name, way in ways.items()
                }
            )
            for name, text in texts.items():
                taken[name].append(text.seconds_a_token)
            tokens_a_pass.append(len(texts["auto"].token_ids) / len(texts["auto"].steps))
            same &= all(text.token_ids == texts["plain"].token_ids for text in texts.values())
        over = {name: list(map(truediv, seconds, taken["auto"])) for name, seconds in taken.items()}
        report[family] = {
            **{name: round(1 / mean(seconds), 1) for name, seconds in taken.items()},
            "ratios": [round(ratio, 2) for ratio in over["plain"]],
            "over": {name: round(mean(ratios), 2) for name, ratios in over.items() if name != "auto"},
            "tokens_a_pass": round(mean(tokens_a_pass), 2),
            "same": same,
        }
    print(json.dumps({"target": target.name, "families": report}, indent=1))


if __name__ == "__main__":
    main()
