"""Many sequences: many prompts, and several samples of one."""

from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as Tokens
from typing import Literal, Unpack

from draftwise.batch import Batch
from draftwise.checks import listed, whole_number
from draftwise.control.base import Controller
from draftwise.drafters.base import Drafter
from draftwise.models.base import LanguageModel
from draftwise.prompt import Prompt
from draftwise.request import Options, Request
from draftwise.sequence import Sequence
from draftwise.types import Generation, Step

MAX_ROWS = 8


def generate_batch(
    target: LanguageModel,
    prompts: Tokens[Prompt | Request],
    *,
    max_rows: int = MAX_ROWS,
    drafter: Drafter | Tokens[Drafter] | None = None,
    num_draft_tokens: int | Literal["auto"] | Controller | None = "auto",
    **options: Unpack[Options],
) -> list[Generation]:
    """Generate from several prompts together; the generations, in the order of the prompts.

    `options`: of each prompt that is not a `Request`, which has its own; each has the same seed, if one is
    given, as it would have alone. `max_rows`: how many are under way at once; when one is finished, the next
    one takes its row. `drafter` and `num_draft_tokens`: as `stream` takes them. All are checked before the
    first step; raises OptionError and PromptError.
    """
    requests = [
        each if isinstance(each, Request) else Request(each, **options)
        for each in listed("prompts", prompts, "a list of prompts")
    ]
    groups = [[request.sequence(target)] for request in requests]
    together = run_batch(
        target, groups, max_rows=max_rows, drafter=drafter, num_draft_tokens=num_draft_tokens
    )
    return [generation for _, (generation,) in sorted(together, key=lambda finished: finished[0])]


def generate_samples(
    target: LanguageModel,
    prompt: Prompt,
    num_samples: int,
    *,
    max_rows: int = MAX_ROWS,
    drafter: Drafter | Tokens[Drafter] | None = None,
    num_draft_tokens: int | Literal["auto"] | Controller | None = "auto",
    **options: Unpack[Options],
) -> list[Generation]:
    """Draw several outputs for one prompt, which the target reads once.

    The step that reads it is the first of each generation, and emits nothing. With a `seed` the samples have
    that one, the next, and so on. `max_rows`: how many samples are under way at once; the prompt is read
    again for more than that. `prompt` and the other options: as `stream` takes them. Raises OptionError and
    PromptError.
    """
    whole_number("num_samples", num_samples, least=1)
    request = Request(prompt, **options)
    group = [sample.sequence(target) for sample in request.samples(num_samples)]
    together = run_batch(
        target, [group], max_rows=max_rows, drafter=drafter, num_draft_tokens=num_draft_tokens
    )
    return next(generations for _, generations in together)


def run_batch(
    target: LanguageModel,
    groups: Tokens[Tokens[Sequence]],
    *,
    max_rows: int = MAX_ROWS,
    drafter: Drafter | Tokens[Drafter] | None = None,
    num_draft_tokens: int | Literal["auto"] | Controller | None = "auto",
) -> Iterator[tuple[int, list[Generation]]]:
    """Generate sequences together, and yield the number of each group and its generations as it finishes.

    Those of a group begin with the same prompt, which is read once for as many of them as there are rows.
    """
    whole_number("max_rows", max_rows, least=1)
    num_rows = min(max_rows, sum(map(len, groups)))
    waiting = deque(
        (number, part)
        for number, group in enumerate(groups)
        for part in (group[start : start + num_rows] for start in range(0, len(group), num_rows))
    )
    if not waiting:
        return
    max_length = max(sequence.max_length for group in groups for sequence in group)
    steps: dict[Sequence, list[Step]] = {}
    running: dict[int, tuple[int, Sequence]] = {}  # by row
    left = [len(group) for group in groups]
    with Batch(target, num_rows, max_length, drafter=drafter, num_draft_tokens=num_draft_tokens) as batch:
        while waiting or running:
            while waiting and len(waiting[0][1]) <= len(batch.free_rows):
                number, part = waiting.popleft()
                for row, sequence in zip(batch.add(*part), part, strict=True):
                    running[row] = number, sequence
                    steps[sequence] = []
            for step in batch.step():
                number, sequence = running[step.row]
                steps[sequence].append(step)
                if step.finish_reason:
                    del running[step.row]
                    left[number] -= 1
                    if not left[number]:
                        yield (
                            number,
                            [
                                Generation.of(steps.pop(each), each.num_prompt_tokens)
                                for each in groups[number]
                            ],
                        )
