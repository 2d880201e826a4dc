"""`draftwise generate --heads`."""

import json
from pathlib import Path

from tests.cli.conftest import Run
from tests.drafters.heads.published import random, save

OPTIONS = ["generate", "The quick brown fox", "--raw", "--max-new-tokens", 12, "--threads", 1, "--json"]


def save_heads(folder: Path, width: int = 64) -> Path:
    """Medusa heads for the tiny Llama of the command line's tests."""
    shapes: dict[str, tuple[int, ...]] = {"0.0.linear.weight": (width, width), "0.0.linear.bias": (width,)}
    return save(folder, "medusa", {"medusa_num_heads": 1}, random({**shapes, "0.1.weight": (320, width)}))


def test_heads_draft_on_either_engine(run: Run, llama: Path, tmp_path: Path) -> None:
    heads = save_heads(tmp_path / "heads")
    for options in (["--heads", heads], ["--drafter", "heads", "--heads", heads, "--engine", "torch"]):
        result = run(*OPTIONS, "--target", llama, *options, "--compare", "--num-draft-tokens", "own")
        assert (result.code, result.err) == (0, "")
        printed = json.loads(result.out)
        assert printed["token_ids"] == printed["plain"]["token_ids"]
        assert [len(step["drafted"]) for step in printed["steps"][:3]] == [0, 1, 1]


def test_heads_guess_trees_on_the_torch_engine(run: Run, llama: Path, tmp_path: Path) -> None:
    heads = save_heads(tmp_path / "heads")
    options = ["--heads", heads, "--tree", 3, "--num-draft-tokens", "own", "--compare"]
    result = run(*OPTIONS, "--target", llama, *options)
    assert (result.code, result.err) == (0, "")
    printed = json.loads(result.out)
    assert printed["token_ids"] == printed["plain"]["token_ids"]
    assert [len(step["drafted"]) for step in printed["steps"][:3]] == [0, 3, 3]
    for tree, words in (("wide", 'the tree is "wide"; give a number of guesses'), ("4x", 'the tree is "4x"')):
        assert words in run(*OPTIONS, "--heads", heads, "--tree", tree).err.replace("\n", " ")
    refused = run(*OPTIONS, "--drafter", "suffix", "--tree", 4).err.replace("\n", " ")
    assert "the drafter suffix takes no tree; give one to draft-model or heads." in refused


def test_heads_that_do_not_fit_are_refused_in_one_sentence(run: Run, llama: Path, tmp_path: Path) -> None:
    heads = save_heads(tmp_path / "heads", width=32)
    result = run(*OPTIONS, "--target", llama, "--heads", heads, "--engine", "torch")
    assert result.code == 2
    assert "has 0.0.linear.weight of shape [32, 32], where [64, 64] is expected" in result.err.replace(
        "\n", " "
    )
    result = run(*OPTIONS, "--target", llama, "--drafter", "heads")
    assert result.code == 2
    assert "the drafter heads needs --heads HEADS." in result.err
