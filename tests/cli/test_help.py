"""The help answers at once, because nothing heavy is imported for it."""

import subprocess
import sys

import pytest

HEAVY = {"huggingface_hub", "numpy", "onnxruntime", "tokenizers", "torch", "transformers"}


def imported_by(code: str) -> set[str]:
    """Which of the heavy packages a fresh interpreter has imported after some code."""
    code += f"; import sys; print(*({HEAVY!r} & sys.modules.keys()), file=sys.stderr)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr.split())


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["generate", "--help"], ["convert", "--help"], ["ngram", "--help"], ["plan", "--help"]],
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    assert imported_by(f"from draftwise.cli import main; assert main({arguments!r}) == 0") == set()


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert imported_by("import draftwise") == set()
    assert "numpy" in imported_by("import draftwise; draftwise.generate")
