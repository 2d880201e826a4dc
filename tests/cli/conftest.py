"""A command line inside the test process, and tiny models for it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from draftwise.cli import main
from tests.tiny_folders import save_llama


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line; its cache is empty and its standard input is, too."""
    monkeypatch.setenv("DRAFTWISE_CACHE", str(tmp_path / "cache"))

    def run_in_process(*arguments: object) -> Result:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Result(code, *capsys.readouterr())

    return run_in_process


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama that takes chats."""
    return save_llama(tmp_path_factory.mktemp("llama") / "tiny-llama")


@pytest.fixture(scope="session")
def other_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another one with the same tokenizer and without a chat template."""
    return save_llama(tmp_path_factory.mktemp("llama") / "other-llama", seed=2, chat_template=None)
