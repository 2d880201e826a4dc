"""Prompts to plan and measure with, from the public files' formats or plain text, each with its task."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from draftwise.chat_template import Message, text_of
from draftwise.errors import PromptError

# Spec-Bench has turns, HumanEval and most others a prompt, GSM8K a question.
_TEXT_FIELDS = ("turns", "prompt", "question", "text")
_MEND = "Fix the bug in this function. Answer with the whole corrected function only."
_TASK_FIELDS = ("category", "task", "family", "source")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt, text or chat messages, and the task that it is an example of.

    `where`: in which file and line it stands, for errors.
    """

    task: str
    content: str | tuple[Message, ...]
    where: str = field(default="", compare=False, repr=False)

    @property
    def text(self) -> str:
        """The text, or those of the messages, a blank line between them."""
        if isinstance(self.content, str):
            return self.content
        return "\n\n".join(text_of(message.get("content")) or "" for message in self.content)


def read_prompts(file: Path) -> list[Prompt]:
    """The prompts of a JSONL file, one object a line, or of a text file, which is one prompt.

    A line has its text under `turns` (the first is taken, as in Spec-Bench), `prompt` (HumanEval), `question`
    or `text`; one with `messages` is a conversation, up to the last message that is not the assistant's. It
    may name its task under `category`, `task`, `family` or `source`; without one, the task is the name of the
    file. A line with a faulty program (HumanEvalPack, QuixBugs) asks to mend it. Raises PromptError, which
    names file and line.
    """
    try:
        content = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise PromptError(f"{file} cannot be read ({error.strerror}); give a JSONL or text file.") from None
    except UnicodeDecodeError as error:
        raise PromptError(f"{file} is not UTF-8 text (byte {error.start}); give it in UTF-8.") from None
    if not content.strip():
        raise PromptError(f"{file} holds no prompt; give a JSONL file of prompts or a text.")
    if file.suffix not in (".jsonl", ".json"):
        return [Prompt(file.stem, content, str(file))]
    lines = [(number, line) for number, line in enumerate(content.split("\n"), start=1) if line.strip()]
    return [_prompt(line, file, number) for number, line in lines]


def some_of_each_task(prompts: Iterable[Prompt], count: int) -> list[Prompt]:
    """The first `count` prompts of each task, task by task in the order of the file."""
    prompts = list(prompts)
    order = {task: place for place, task in enumerate(dict.fromkeys(prompt.task for prompt in prompts))}
    by_task = groupby(sorted(prompts, key=lambda prompt: order[prompt.task]), key=lambda prompt: prompt.task)
    return [prompt for _, group in by_task for prompt in list(group)[:count]]


def _prompt(line: str, file: Path, number: int) -> Prompt:
    where = f"line {number} of {file}"
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise PromptError(f"{where} is not JSON; give one object a line.") from None
    if not isinstance(fields, dict):
        fields = {"text": fields}
    task = str(_first(fields, _TASK_FIELDS) or file.stem)
    if "messages" in fields:
        return Prompt(task, _asked(fields["messages"], where), where)
    text = _to_mend(fields) or _first(fields, _TEXT_FIELDS)
    if isinstance(text, list) and text:
        text = text[0]
    if not isinstance(text, str) or not text:
        raise PromptError(f"{where} has no text under {', '.join(_TEXT_FIELDS)}, and no messages.")
    return Prompt(task, text, where)


def _asked(messages: Any, where: str) -> tuple[Message, ...]:
    """Chat messages, less what was answered to the last of them."""
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise PromptError(f"the messages of {where} are no list of objects with a role and a content.")
    asked = [place for place, message in enumerate(messages, 1) if message.get("role") != "assistant"]
    if not asked:
        raise PromptError(f"the messages of {where} ask nothing; give one that is not the assistant's.")
    return tuple(messages[: max(asked)])


def _to_mend(fields: Mapping[str, Any]) -> str | None:
    """The request to mend the program of a row that has a faulty one."""
    program = (
        f"{fields.get('declaration', '')}{fields['buggy_solution']}"
        if "buggy_solution" in fields
        else fields.get("buggy_program")
    )
    return f"{_MEND}\n\n```python\n{program}```" if program else None


def _first(fields: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((fields[name] for name in names if name in fields), None)
