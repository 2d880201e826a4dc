"""Prompt files in the formats of the public ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from draftwise.errors import PromptError
from draftwise.planning.prompts import Prompt, read_prompts, some_of_each_task


def written(file: Path, *rows: object) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def test_formats(tmp_path: Path) -> None:
    file = written(
        tmp_path / "prompts.jsonl",
        {"question_id": 81, "category": "writing", "turns": ["Compose.", "Rewrite."]},
        {"task_id": "HumanEval/0", "prompt": "def f():", "entry_point": "f"},
        {"question": "How many?", "answer": "18"},
        {"source": "chat", "kind": "x", "prompt": "Build."},
        {"prompt": "def g():", "declaration": "def g():\n", "buggy_solution": "    return 1\n"},
        {"name": "h", "buggy_program": "def h(): pass", "solution": "def h(): return 1"},
        "just text",
    )
    mend = "Fix the bug in this function. Answer with the whole corrected function only.\n\n"
    assert read_prompts(file) == [
        Prompt("writing", "Compose."),
        Prompt("prompts", "def f():"),
        Prompt("prompts", "How many?"),
        Prompt("chat", "Build."),
        Prompt("prompts", f"{mend}```python\ndef g():\n    return 1\n```"),
        Prompt("prompts", f"{mend}```python\ndef h(): pass```"),
        Prompt("prompts", "just text"),
    ]


def test_a_text_is_one_prompt_and_blank_lines_are_none(tmp_path: Path) -> None:
    text = tmp_path / "story.txt"
    text.write_text("Once upon\na time\n", encoding="utf-8")
    assert read_prompts(text) == [Prompt("story", "Once upon\na time\n")]
    lines = tmp_path / "lines.jsonl"
    lines.write_text('\n{"prompt": "a"}\n\n{"prompt": "b"}\n', encoding="utf-8")
    assert [prompt.text for prompt in read_prompts(lines)] == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "holds no prompt"),
        ('{"prompt": "a"}\n{', "line 2 of .* is not JSON"),
        ('{"answer": "a"}', "line 1 of .* has no text under"),
        ('{"turns": []}', "has no text"),
        ('{"prompt": ""}', "has no text"),
        ("7", "has no text"),
        ("[" * 100_000, "is not JSON"),
        ('{"messages": [], "prompt": "a"}', "messages of line 1 of .* ask nothing"),
        ('{"messages": [{"role": "user", "content": "a"}, "b"]}', "messages of line 1 of .* are no list of"),
        ('{"messages": [{"role": "assistant", "content": "hello"}]}', "ask nothing"),
    ],
)
def test_what_holds_no_prompt(content: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(PromptError, match=words):
        read_prompts(file)


def test_a_conversation_is_asked_up_to_its_last_answer(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello?"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": [{"type": "text", "text": "And?"}]},
    ]
    answer = {"role": "assistant", "content": "Goodbye."}
    file = written(
        tmp_path / "log.jsonl", {"messages": [*asked, answer], "source": "chat"}, {"messages": asked}
    )
    answered, open_ended = read_prompts(file)
    assert answered == Prompt("chat", tuple(asked))
    assert open_ended == Prompt("log", tuple(asked))
    assert answered.text == "Be brief.\n\nHello?\n\nHello.\n\nAnd?"
    assert open_ended.where == f"line 2 of {file}"


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="cannot be read"):
        read_prompts(tmp_path / "absent.jsonl")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(PromptError, match="not UTF-8"):
        read_prompts(tmp_path / "latin.txt")


def test_some_of_each_task() -> None:
    prompts = [Prompt(task, str(index)) for index, task in enumerate("abaabb")]
    assert [prompt.text for prompt in some_of_each_task(prompts, 2)] == ["0", "2", "1", "4"]
