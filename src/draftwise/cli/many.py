"""Many prompts of one command: answered together, written as they finish."""

import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from draftwise.cli import report
from draftwise.errors import OptionError
from draftwise.progress import shown

if TYPE_CHECKING:
    from draftwise.drafters.base import Drafter
    from draftwise.models.base import LanguageModel
    from draftwise.request import Request
    from draftwise.types import Generation

_BEGINNING = b'{"index": '  # of each line


class Answers:
    """The lines that are written for prompts, to a file that can be taken up again or to standard output."""

    def __init__(self, file: Path | None, requests: "Sequence[Request]", *conditions: object) -> None:
        """Take up a file that an earlier call left, or begin one: a line that was cut off is dropped.

        `conditions`: what else the answers depend on. Raises OptionError where the file holds answers to
        other prompts or under other conditions, or cannot be written.
        """
        self._file = file
        self._digests = [
            hashlib.sha256(repr((*conditions, request)).encode()).hexdigest()[:16] for request in requests
        ]
        self.finished: Collection[int] = () if file is None else self._taken_up(file)

    def _taken_up(self, file: Path) -> set[int]:
        try:
            with open(file, "a+b") as opened:
                opened.seek(0)
                content = opened.read()
                *whole, cut_off = content.split(b"\n")
                finished = {self._answered(line) for line in whole}
                if None in finished or not (cut_off.startswith(_BEGINNING) or _BEGINNING.startswith(cut_off)):
                    raise OptionError(
                        f"{file} holds something other than answers to these prompts with these options; "
                        "give another path or remove it."
                    )
                opened.truncate(len(content) - len(cut_off))
        except OSError as error:
            raise OptionError(
                f"{file} cannot be written ({error.strerror}); give --out another path."
            ) from None
        return {index for index in finished if index is not None}

    def _answered(self, line: bytes) -> int | None:
        """The number of the prompt that a line answers, None for any other line."""
        try:
            answer = json.loads(line)
            index: int = answer["index"]
            return index if self._digests[index] == answer["request"] else None
        except (ValueError, KeyError, TypeError, IndexError, RecursionError):
            return None

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
