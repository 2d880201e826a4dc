"""One run step by step, as the paper's Figures 1 and 5 show it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from draftwise.decoding import generate
from draftwise.drafters.base import Drafter
from draftwise.models.base import LanguageModel
from draftwise.sampling import SamplingParams
from draftwise.types import Origin, Step

GREEDY, SAMPLED = SamplingParams(), SamplingParams(1.0)


def token_by_token(
    steps: Iterable[Step], decode: Callable[[Sequence[int]], str]
) -> list[list[tuple[str, str]]]:
    """Figure 1: the pieces of text of each step, each with its origin, or "rejected" for a guess that was."""
    lines = []
    for step in steps:
        own = list(zip(step.pieces, step.origins, strict=True))
        accepted = [(piece, str(origin)) for piece, origin in own if origin is Origin.ACCEPTED]
        rejected = [
            (decode([token_id]), "rejected")
            for token_id in step.drafted[step.num_accepted : step.num_accepted + 1]
            if len(own) > len(accepted)
        ]
        rest = [(piece, str(origin)) for piece, origin in own if origin is not Origin.ACCEPTED]
        lines.append([*accepted, *rejected, *rest])
    return lines


def run_steps(
    target: LanguageModel,
    prompt_ids: Sequence[int],
    drafter: Drafter,
    num_draft_tokens: int | Literal["auto"] | None,
    max_new_tokens: int,
    sampling: SamplingParams = GREEDY,
) -> tuple[Step, ...]:
    """The steps of one generation with token-wise verification, the paper's Algorithm 1."""
    return generate(
        target,
        prompt_ids,
        drafter=drafter,
        sampling=sampling,
        num_draft_tokens=num_draft_tokens,
        max_new_tokens=max_new_tokens,
        verification="token",
        seed=0,
    ).steps
