"""Prompt lookup against plain decoding on SmolLM2, by family of prompts. Prints one JSON object.

    python benchmarks/demo_speed.py --data DIR [--target MODEL] [--rounds 5] [--prompts 10]

Each prompt is decoded plainly and speculatively in turn, `rounds` times. A prompt's figure is the median of
its rounds, in tokens a second after the pass that reads the prompt; a family's is that of its prompts.
"""

import argparse
import json
from pathlib import Path

from draftwise import generate, load
from draftwise.drafters.base import Drafter
from draftwise.drafters.none import NoDrafter
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.models.base import LanguageModel
from measuring import Messages, family_prompts, summary

FAMILIES = {"summarisation and rag": ("summarization", "rag"), "code editing": ("code_editing",)}
DRAFTERS: dict[str, Drafter] = {"plain": NoDrafter(), "lookup": PromptLookup()}


def measure(
    model: LanguageModel, prompt: Messages, max_new_tokens: int, rounds: int
) -> dict[str, object] | None:
    """Median speeds of one prompt; None where the answer is too short to have a speed."""
    speeds: dict[str, list[float]] = {name: [] for name in DRAFTERS}
    tokens: dict[str, tuple[int, ...]] = {}
    passes: dict[str, int] = {}
    for _ in range(rounds):
        for name, drafter in DRAFTERS.items():
            done = generate(model, prompt, drafter=drafter, max_new_tokens=max_new_tokens)
            if len(done.token_ids) < 8 or done.decode_tokens_per_second is None:
                return None
            speeds[name].append(done.decode_tokens_per_second)
            tokens[name], passes[name] = done.token_ids, done.target_passes
    medians = {name: summary(values)["median"] for name, values in speeds.items()}
    return {
        **medians,
        "ratio": medians["lookup"] / medians["plain"],
        "tokens a pass": len(tokens["lookup"]) / passes["lookup"],
        "same output": tokens["plain"] == tokens["lookup"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--target", default="smollm2-135m-instruct")
    parser.add_argument("--prompts", type=int, default=10)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    model = load(options.target, engine="onnx")
    generate(model, "Warm up.", max_new_tokens=32, ignore_eos=True)
    report: dict[str, object] = {}
    for family, sources in FAMILIES.items():
        share = -(-options.prompts // len(sources))
        prompts = [prompt for source in sources for prompt in family_prompts(options.data, source, share)]
        measured = [
            row
            for prompt in prompts[: options.prompts]
            if (row := measure(model, prompt, options.max_new_tokens, options.rounds))
        ]
        report[family] = {
            "prompts": len(measured),
            "same output": all(row["same output"] for row in measured),
            **{
                key: summary(float(str(row[key])) for row in measured)
                for key in ("plain", "lookup", "ratio", "tokens a pass")
            },
        }
    print(json.dumps({"target": model.name, "tokens a second": report}, indent=1))


if __name__ == "__main__":
    main()
