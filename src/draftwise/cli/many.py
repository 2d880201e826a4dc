"""Many prompts of one command: read from a JSONL file, answered together, written as they finish."""

import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from draftwise.cli import report
from draftwise.cli.prompt import read_text
from draftwise.errors import OptionError, PromptError
from draftwise.progress import shown

if TYPE_CHECKING:
    from draftwise.drafters.base import Drafter
    from draftwise.models.base import LanguageModel
    from draftwise.prompt import Prompt
    from draftwise.request import Request
    from draftwise.types import Generation


def read_requests(file: Path, options: "Request", as_prompt: "Callable[[str], Prompt]") -> "list[Request]":
    """A request for each line of a JSONL file, which has a `prompt` or `messages`.

    Other fields of a line are options of its own: of `Request` and of `SamplingParams`, by their names. The
    others are those of `options`. Raises PromptError, which names the line, where it is not so written, and
    OptionError for a value out of range.
    """
    lines = [line for line in read_text(file).splitlines() if line.strip()]
    if not lines:
        raise PromptError(f"{file} has no prompts; give a JSON object with a prompt on each line.")
    return [
        _request(f"line {number} of {file}", line, options, as_prompt)
        for number, line in enumerate(lines, start=1)
    ]


def _request(where: str, line: str, options: "Request", as_prompt: "Callable[[str], Prompt]") -> "Request":
    from draftwise.request import Options, Request
    from draftwise.sampling import SamplingParams

    try:
        given = json.loads(line)
    except ValueError as error:
        raise PromptError(f"{where} is not JSON ({error}); write one object a line.") from None
    if not isinstance(given, dict) or ("prompt" in given) == ("messages" in given):
        raise PromptError(f"{where} is no object with either a prompt or messages; give one of them.")
    prompt = given.pop("prompt", None) or given.pop("messages", ())
    own = {name: given.pop(name) for name in Options.__annotations__ if name in given and name != "sampling"}
    sampled = {field.name for field in fields(SamplingParams) if field.name in _PLAIN_SAMPLING}
    sampling = {name: given.pop(name) for name in sampled if name in given}
    if given:
        raise PromptError(
            f"{where} has {next(iter(given))!r}, which is no option; give some of "
            f"{', '.join(sorted({*Options.__annotations__} - {'sampling'} | sampled))}."
        )
    request: Request = replace(
        options,
        prompt=as_prompt(prompt) if isinstance(prompt, str) else prompt,
        sampling=replace(options.sampling or SamplingParams(), **sampling),
        **own,
    )
    return request


# Those that JSON can say as they are.
_PLAIN_SAMPLING = {
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "banned",
    "min_new_tokens",
}


class Answers:
    """The lines that are written for prompts, to a file that can be taken up again or to standard output."""

    def __init__(
        self, file: Path | None, target: str, requests: "Sequence[Request]", num_samples: int
    ) -> None:
        """Take up a file that an earlier call left: a line that was cut off in the middle is dropped.

        Raises OptionError where the file holds answers to other prompts or options, or cannot be read.
        """
        self._file = file
        self._digests = [
            hashlib.sha256(repr((target, request, num_samples)).encode()).hexdigest()[:16]
            for request in requests
        ]
        self.finished: Collection[int] = self._taken_up() if file is not None and file.exists() else ()

    def _taken_up(self) -> set[int]:
        assert self._file is not None
        try:
            with open(self._file, "r+b") as opened:
                content = opened.read()
                whole = content[: content.rfind(b"\n") + 1]
                opened.truncate(len(whole))
        except OSError as error:
            raise OptionError(
                f"{self._file} cannot be taken up ({error.strerror}); give another path."
            ) from None
        finished = set()
        for line in whole.splitlines():
            try:
                answer = json.loads(line)
                known = self._digests[answer["index"]] == answer["request"]
            except (ValueError, KeyError, TypeError, IndexError):
                known = False
            if not known:
                raise OptionError(
                    f"{self._file} holds answers to other prompts or options; give another path or remove it."
                )
            finished.add(answer["index"])
        return finished

    def add(self, index: int, generations: "Sequence[Generation]") -> None:
        """Write the line of one prompt, whole."""
        answer: Mapping[str, Any] = {
            "index": index,
            "request": self._digests[index],
            "samples": [report.figures(generation) for generation in generations],
        }
        line = json.dumps(answer, ensure_ascii=False) + "\n"
        if self._file is None:
            print(line, end="", flush=True)
            return
        with open(self._file, "ab", buffering=0) as opened:
            opened.write(line.encode())  # at once: whoever ends the process ends it before or after
            os.fsync(opened.fileno())


class Texts:
    """Writes the texts of samples to standard output, an empty line between them."""

    finished: Collection[int] = ()

    def add(self, index: int, generations: "Sequence[Generation]") -> None:
        """Write all of them."""
        print("\n\n".join(generation.text for generation in generations))


def answer_all(
    target: "LanguageModel",
    requests: "Sequence[Request]",
    answers: Answers | Texts,
    *,
    num_samples: int,
    max_rows: int,
    drafter: "Sequence[Drafter]",
    num_draft_tokens: int | Literal["auto"] | None,
) -> None:
    """Generate for the requests that are not answered yet, with a bar of how far it is."""
    from draftwise.batches import run_batch

    left = [index for index in range(len(requests)) if index not in answers.finished]
    groups = [[sample.sequence(target) for sample in requests[index].samples(num_samples)] for index in left]
    together = run_batch(
        target, groups, max_rows=max_rows, drafter=drafter, num_draft_tokens=num_draft_tokens
    )
    with shown(None) as progress:
        for number, (group, generations) in enumerate(together, start=1):
            answers.add(left[group], generations)
            progress("prompts", (len(answers.finished) + number) / len(requests))
