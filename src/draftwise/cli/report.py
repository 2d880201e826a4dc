"""What a generation looks like: coloured tokens, closing lines, JSON."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from draftwise.types import Generation, Step

# As in Figure 1 of 2211.17192: accepted guesses green, their corrections blue.
STYLES = {"accepted": "green", "recovered": "bright_blue", "bonus": "magenta"}


def coloured(steps: "Iterable[Step]") -> "Iterator[Step]":
    """Pass steps on, showing each token in the colour of its origin after a legend."""
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True, highlight=False)
    console.print(Text("  ").join(Text(f"■ {origin}", style) for origin, style in STYLES.items()))
    for step in steps:
        for origin, piece in zip(step.origins, step.pieces, strict=True):
            console.print(Text(piece, STYLES[origin]), end="")
        yield step
    console.print()


def plain(steps: "Iterable[Step]") -> "Iterator[Step]":
    """Pass steps on, writing their text to standard output and nothing else."""
    for step in steps:
        print(end="".join(step.pieces), flush=True)
        yield step
    print()


def summary(generation: "Generation") -> str:
    """The closing line: tokens, target passes, tokens a pass, acceptance rate, tokens a second."""
    rate, speed = generation.acceptance_rate, generation.decode_tokens_per_second
    return " · ".join(
        [
            _counted(len(generation.token_ids), "token"),
            _counted(generation.target_passes, "target pass", "target passes"),
            f"{generation.mean_acceptance_length:.2f} tokens a pass",
            "nothing drafted" if rate is None else f"acceptance rate {rate:.2f}",
            "too short to time" if speed is None else f"{speed:.1f} tokens a second",
        ]
    )


def comparison(
    speculative: "Generation",
    baseline: "Generation",
    *,
    is_greedy: bool,
    is_exact: bool = True,
    width_invariant: bool,
) -> str:
    """The line of --compare: the ratio of decode speeds, and whether the outputs are the same.

    `width_invariant`: whether the target's logits have the same bits in passes of every width; where they
    have not, greedy outputs may part at a tie.
    """
    ratio = speedup(speculative, baseline)
    speed = (
        "too short to compare with plain decoding"
        if ratio is None
        else f"plain decoding {baseline.decode_tokens_per_second:.1f} tokens a second: "
        f"{ratio:.2f} times as fast with drafts"
    )
    if speculative.token_ids == baseline.token_ids:
        return f"{speed} · the same tokens"
    if not is_greedy:
        same = "the same distribution" if is_exact else "another distribution, as lenience is not exact"
        return f"{speed} · other tokens of {same}"
    pairs = enumerate(zip_longest(speculative.token_ids, baseline.token_ids), start=1)
    parted = f"the tokens differ from number {next(i for i, (a, b) in pairs if a != b)} on"
    reason = "" if width_invariant else " (passes of different widths round differently here)"
    return f"{speed} · {parted}{reason}"


def _counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def speedup(speculative: "Generation", baseline: "Generation") -> float | None:
    """Decode tokens a second over those of plain decoding; None where either has but one pass."""
    fast, slow = speculative.decode_tokens_per_second, baseline.decode_tokens_per_second
    return fast / slow if fast and slow else None


def as_object(generation: "Generation", baseline: "Generation | None" = None) -> dict[str, Any]:
    """The object of --json: seconds are wall time, `accepted` counts accepted draft tokens.

    `parents` is the tree that the drafted tokens of a step form, null for a chain.
    """
    steps = [
        {
            "drafted": step.drafted,
            "parents": step.parents,
            "accepted": step.num_accepted,
            "emitted": step.emitted,
        }
        for step in generation.steps
    ]
    compared = {"plain": figures(baseline), "speedup": speedup(generation, baseline)} if baseline else {}
    return {**figures(generation), "steps": steps, **compared}


def figures(generation: "Generation") -> dict[str, Any]:
    """The object of --json without its steps; `logprobs` are there if they were asked for."""
    seconds = generation.seconds
    logprobs = generation.logprobs
    return {
        "text": generation.text,
        "token_ids": generation.token_ids,
        "finish_reason": generation.finish_reason,
        "num_prompt_tokens": generation.num_prompt_tokens,
        "acceptance_rate": generation.acceptance_rate,
        "mean_acceptance_length": generation.mean_acceptance_length,
        "target_passes": generation.target_passes,
        "seconds": {part: getattr(seconds, part) for part in ("draft", "verify", "other", "total")},
        "decode_tokens_per_second": generation.decode_tokens_per_second,
        **({} if logprobs is None else {"logprobs": [asdict(token) for token in logprobs]}),
    }
