"""Adaptive drafting by family, with prompt lookup and a draft model at hand, in turns with plain decoding.

    python benchmarks/families.py --data DIR [--target MODEL] [--draft-model MODEL] [--family NAME ...]

Greedy. A family's figures are medians over its prompts: tokens a second after the pass that reads the prompt,
and tokens a pass; `ratios` are over plain decoding, prompt by prompt. `same` says whether every output was
that of plain decoding, token for token. Prints one JSON object.
"""

import argparse
import json
from pathlib import Path
from statistics import median

from draftwise import generate, load
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.prompt_lookup import PromptLookup
from measuring import Messages, chat, family_prompts


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--target", default="smollm2-135m-instruct")
    parser.add_argument("--draft-model")
    parser.add_argument("--family", action="append", choices=FAMILIES, help="only these; the default is all")
    parser.add_argument("--prompts", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    options = parser.parse_args()
    target = load(options.target, engine="onnx")
    drafters: list[Drafter] = [PromptLookup()]
    if options.draft_model:
        drafters.append(DraftModel(load(options.draft_model, engine="onnx")))
    for using in ((), drafters):  # what happens only once, the profile too, happens here
        generate(target, chat("Say yes."), drafter=using, max_new_tokens=8)
    report: dict[str, object] = {}
    for family in options.family or FAMILIES:
        pairs = [
            [
                generate(
                    target, prompt, drafter=using, max_new_tokens=options.max_new_tokens, ignore_eos=True
                )
                for using in ((), drafters)
            ]
            for prompt in prompts_of(options.data, family, options.prompts)
            for _ in range(options.rounds)
        ]
        speeds = [[each.decode_tokens_per_second or 0.0 for each in pair] for pair in pairs]
        report[family] = {
            "plain": round(median(plain for plain, _ in speeds), 1),
            "auto": round(median(auto for _, auto in speeds), 1),
            "ratios": [round(auto / plain, 2) for plain, auto in speeds],
            "tokens_a_pass": round(median(auto.mean_acceptance_length for _, auto in pairs), 2),
            "same": all(plain.token_ids == auto.token_ids for plain, auto in pairs),
        }
    print(json.dumps({"target": target.name, "families": report}, indent=1))


if __name__ == "__main__":
    main()
