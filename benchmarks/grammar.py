"""Grammars under speculation: does every output match, and is the law that of constrained plain decoding?

    python benchmarks/grammar.py [--target MODEL] [--outputs 200] [--draws 400]

First, outputs at temperature 1 under a JSON schema, drafted by a bigram model whose draws follow the same
grammar and by prompt lookup; each has to end, parse and fit. Then a choice of a few words: its exact law
under constrained plain decoding, from the target's own distributions along every way to spell them, beside
the counts of speculative draws (chi-square). Prints one JSON object.
"""

import argparse
import json
from collections import Counter
from contextlib import closing

import numpy as np
from scipy.stats import chisquare

from draftwise import (
    Drafter,
    FinishReason,
    Grammar,
    NgramModel,
    PromptLookup,
    SamplingParams,
    Several,
    generate,
    load,
)
from draftwise.models.base import LanguageModel
from draftwise.prompt import encode_prompt
from draftwise.sampling import Sampler
from measuring import chat

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z][a-z]{1,10}$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "likes": {"type": "array", "items": {"enum": ["tea", "maps", "rain", "jazz"]}, "maxItems": 3},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}
QUESTION = chat("Invent a person. Answer in JSON with the keys name, age and likes.")
WORDS = ["red", "green", "blue", "black", "white", "yellow"]
CHOICE = chat("Name a colour, in JSON.")


def fits(text: str) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return (
        list(value) == ["name", "age", "likes"]
        and isinstance(value["name"], str)
        and isinstance(value["age"], int)
        and 0 <= value["age"] <= 120
        and set(value["likes"]) <= {"tea", "maps", "rain", "jazz"}
    )


def exact_law(target: LanguageModel, prompt_ids: list[int], params: SamplingParams) -> dict[str, float]:
    """What constrained plain decoding says, by the product of probabilities along every sequence."""
    law: dict[str, float] = {}
    tokenizer = target.tokenizer
    assert tokenizer
    with closing(target.open(1, len(prompt_ids) + 40)) as state:

        def follow(path: list[int], probability: float, sampler: Sampler) -> None:
            state.keep(0, min(state.lengths[0], len(prompt_ids) + len(path) - 1))
            feed = [*prompt_ids, *path][state.lengths[0] :]
            probs = sampler.probs(state.forward([feed], [1])[0][-1])
            for token_id in np.flatnonzero(probs).tolist():
                reached = probability * float(probs[token_id])
                if token_id in target.eos_token_ids:
                    text = tokenizer.decode(path)
                    law[text] = law.get(text, 0.0) + reached
                elif reached > 1e-7:
                    follow([*path, token_id], reached, sampler.after([token_id]))

        follow([], 1.0, Sampler.start(params, prompt_ids, target))
    return law


def people(target: LanguageModel, drafters: list[Drafter], count: int) -> dict[str, object]:
    """How many outputs end, parse and fit; others as they are."""
    sampling = SamplingParams(1.0, grammar=Grammar.json_schema(PERSON))
    outcomes: Counter[str] = Counter()
    steps = tokens = 0
    for seed in range(count):
        drafter = drafters[seed % len(drafters)]
        written = generate(
            target, QUESTION, drafter=drafter, sampling=sampling, max_new_tokens=400, seed=seed
        )
        ended = written.finish_reason is FinishReason.EOS
        outcomes["fit" if ended and fits(written.text) else repr(written.text)] += 1
        steps, tokens = steps + len(written.steps), tokens + len(written.token_ids)
    return {"outputs": dict(outcomes), "tokens a pass": round(tokens / steps, 2)}


def choices(target: LanguageModel, drafters: list[Drafter], count: int) -> dict[str, object]:
    """Counts of words drawn speculatively, beside their exact law; rare words count as one."""
    sampling = SamplingParams(1.0, grammar=Grammar.json_schema({"enum": WORDS}))
    law = exact_law(target, encode_prompt(target, CHOICE), sampling)
    counts: Counter[str] = Counter()
    for seed in range(count):
        drafter = drafters[seed % len(drafters)]
        counts[
            generate(target, CHOICE, drafter=drafter, sampling=sampling, max_new_tokens=40, seed=seed).text
        ] += 1
    common = [word for word in law if law[word] * count >= 5]
    rest = [word for word in law if word not in common]
    groups = [[word] for word in common] + ([rest] if rest else [])
    observed = [sum(counts[word] for word in group) for group in groups]
    expected = np.array([sum(law[word] for word in group) for group in groups])
    result = chisquare(observed, expected / expected.sum() * sum(observed))
    return {
        "law": {word: round(probability, 4) for word, probability in law.items()},
        "mass of the law": round(sum(law.values()), 6),
        "counts": dict(counts),
        "chi-square": round(float(result.statistic), 2),
        "degrees of freedom": len(groups) - 1,
        "p-value": round(float(result.pvalue), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="smollm2-135m-instruct")
    parser.add_argument("--outputs", type=int, default=200)
    parser.add_argument("--draws", type=int, default=400)
    options = parser.parse_args()
    target = load(options.target)
    tokenizer = target.tokenizer
    assert tokenizer
    example = json.dumps({"name": "Ann", "age": 30, "likes": ["tea", "rain"]}, indent=2)
    texts = [tokenizer.encode(text) for text in (example, *map(json.dumps, WORDS))]
    bigram = NgramModel.count(texts, target.vocab_size, tokenizer=tokenizer)
    drafters: list[Drafter] = [bigram.drafter(), PromptLookup(), Several([PromptLookup(), bigram.drafter()])]
    found = {
        **people(target, drafters, options.outputs),
        **choices(target, drafters, options.draws),
    }
    print(json.dumps({"target": target.name, **found}, indent=1))


if __name__ == "__main__":
    main()
