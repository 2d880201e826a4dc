"""What the benchmarks share: prompts by family, the seconds that count, medians with their spread."""

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from draftwise.planning.prompts import read_prompts
from draftwise.types import Generation

Messages = list[dict[str, str]]


def chat(text: str) -> Messages:
    return [{"role": "user", "content": text}]


def family_prompts(data: Path, family: str, count: int) -> list[Messages]:
    """The first `count` prompts of a family, as chat messages; `data` holds the public prompt files."""
    match family:
        case "code_editing":
            texts = [prompt.text for prompt in read_prompts(data / "humanevalpack_python_even.jsonl")]
        case "humaneval":
            texts = [
                f"Complete this function. Answer with the whole function only.\n\n```python\n{prompt.text}```"
                for prompt in read_prompts(data / "humaneval_even.jsonl")
            ]
        case _:
            prompts = read_prompts(data / "spec_bench_even.jsonl")
            texts = [prompt.text for prompt in prompts if prompt.task == family]
    if not texts:
        raise ValueError(f"no prompts are known for the family {family!r}.")
    return [chat(text) for text in texts[:count]]


def seconds_a_token(generation: Generation, seconds: float) -> float:
    """Of the seconds that a call took: all but those of the pass that reads the prompt."""
    return (seconds - generation.steps[0].seconds.verify) / (len(generation.token_ids) - 1)


def summary(values: Iterable[float]) -> dict[str, float]:
    """Median and quartiles, rounded to four digits."""
    ordered = sorted(values)
    quartiles: Sequence[float] = statistics.quantiles(ordered, n=4) if len(ordered) > 1 else ordered * 3
    return {
        "median": round(statistics.median(ordered), 4),
        "lower_quartile": round(quartiles[0], 4),
        "upper_quartile": round(quartiles[2], 4),
    }
