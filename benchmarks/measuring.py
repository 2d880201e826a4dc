"""What the benchmarks share: prompts by family, medians with their spread, one line of JSON."""

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Messages = list[dict[str, str]]


def read_rows(file: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def chat(text: str) -> Messages:
    return [{"role": "user", "content": text}]


def family_prompts(data: Path, family: str, count: int) -> list[Messages]:
    """The first `count` prompts of a family, as chat messages; `data` holds the public prompt files."""
    match family:
        case "summarization" | "rag" | "qa" | "translation" | "math_reasoning" | "writing":
            rows = read_rows(data / "spec_bench_even.jsonl")
            texts = [row["turns"][0] for row in rows if row["category"] == family]
        case "code_editing":
            texts = [
                "Fix the bug in this function. Answer with the whole corrected function only.\n\n```python\n"
                f"{row['declaration']}{row['buggy_solution']}```"
                for row in read_rows(data / "humanevalpack_python_even.jsonl")
            ]
        case "humaneval":
            texts = [
                "Complete this function. Answer with the whole function only.\n\n"
                f"```python\n{row['prompt']}```"
                for row in read_rows(data / "humaneval_even.jsonl")
            ]
        case _:
            raise ValueError(f"no prompts are known for the family {family!r}.")
    return [chat(text) for text in texts[:count]]


def summary(values: Iterable[float]) -> dict[str, float]:
    """Median and quartiles, rounded to four digits."""
    ordered = sorted(values)
    quartiles: Sequence[float] = statistics.quantiles(ordered, n=4) if len(ordered) > 1 else ordered * 3
    return {
        "median": round(statistics.median(ordered), 4),
        "lower_quartile": round(quartiles[0], 4),
        "upper_quartile": round(quartiles[2], 4),
    }
