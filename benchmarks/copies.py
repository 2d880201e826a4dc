"""How often a copy is right, by the length of the match and by what its earlier occurrences went on with.

    python benchmarks/copies.py --data DIR [--target MODEL] [--prompts 4] [--max-new-tokens 128]

Counted over answers to prompts of several families, token by token: whether the token comes next that
followed the latest earlier occurrence of the longest matching end. `once`: there was one occurrence;
`agreed`: all of several went on alike; `differed`: they did not. `foretold`: the mean of what the confidence
says, before it is calibrated to a text. Prints one JSON object.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import mean

from draftwise import PromptLookup, generate, load
from draftwise.drafters.draft_lengths import match_confidence
from draftwise.drafters.suffix_automaton import SuffixAutomaton
from draftwise.prompt import encode_prompt
from measuring import family_prompts
from never_slower import FAMILIES

LENGTHS = (1, 2, 3, 4, 6, 8)  # of matches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--target", default="smollm2-135m-instruct")
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    options = parser.parse_args()
    target = load(options.target, engine="onnx")
    seen: dict[str, defaultdict[int, list[tuple[bool, float]]]] = {
        kind: defaultdict(list) for kind in ("once", "agreed", "differed")
    }
    for family in FAMILIES:
        for prompt in family_prompts(options.data, family, options.prompts):
            text = list(encode_prompt(target, prompt))
            answer = generate(
                target,
                text,
                drafter=PromptLookup(),
                max_new_tokens=options.max_new_tokens,
                ignore_eos=True,
            ).token_ids
            index = SuffixAutomaton()
            for token_id in text:
                index.append(token_id)
            for token_id in answer:
                if index.match_length in LENGTHS:
                    copied = text[index.match_end]
                    num_alike, num_other = index.went_on(index.match, copied)
                    kind = "differed" if num_other else "agreed" if num_alike > 1 else "once"
                    foretold = match_confidence(index.match_length, num_alike, num_other)
                    seen[kind][index.match_length].append((copied == token_id, foretold))
                index.append(token_id)
                text.append(token_id)
    report = {
        kind: {
            length: {
                "tokens": len(tokens),
                "right": round(mean(right for right, _ in tokens), 3),
                "foretold": round(mean(foretold for _, foretold in tokens), 3),
            }
            for length, tokens in sorted(by_length.items())
        }
        for kind, by_length in seen.items()
    }
    print(json.dumps({"target": target.name, **report}, indent=1))


if __name__ == "__main__":
    main()
