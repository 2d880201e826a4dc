"""What the benchmarks share: prompts by family, ways to decode abreast, medians with their spread."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import perf_counter

from draftwise.planning.prompts import read_prompts
from draftwise.types import Step

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


@dataclass
class Text:
    """A text that was decoded; `seconds`: all that this took but the pass that reads the prompt."""

    steps: list[Step] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def token_ids(self) -> list[int]:
        return [token_id for step in self.steps for token_id in step.emitted]

    @property
    def seconds_a_token(self) -> float:
        return self.seconds / (len(self.token_ids) - 1)


def abreast(ways: Mapping[str, Callable[[], Iterator[Step]]]) -> dict[str, Text]:
    """Decode in several ways at once, step by step: whichever is furthest behind takes the next step.

    All are then near the same token at any time, so that a slow moment of the machine is slow for all.
    """
    order = Random(0)  # of those that are equally far
    texts = {name: Text() for name in ways}
    lengths = dict.fromkeys(ways, 0)
    going: dict[str, Iterator[Step]] = {}
    for name, start in ways.items():
        began = perf_counter()
        going[name] = start()
        texts[name].seconds += perf_counter() - began
    while going:
        name = min(going, key=lambda name: (lengths[name], order.random()))
        began = perf_counter()
        step = next(going[name], None)
        took = perf_counter() - began
        if step is None:
            del going[name]
        else:
            took -= 0.0 if texts[name].steps else step.seconds.verify
            texts[name].steps.append(step)
            lengths[name] += len(step.emitted)
        texts[name].seconds += took
    return texts


def summary(values: Iterable[float]) -> dict[str, float]:
    """Median and quartiles, rounded to four digits."""
    ordered = sorted(values)
    quartiles: Sequence[float] = statistics.quantiles(ordered, n=4) if len(ordered) > 1 else ordered * 3
    return {
        "median": round(statistics.median(ordered), 4),
        "lower_quartile": round(quartiles[0], 4),
        "upper_quartile": round(quartiles[2], 4),
    }
