"""`draftwise convert`: the folder it writes, what it prints, what it refuses."""

import json
import re
from pathlib import Path

from draftwise.models.load import load_tokenizer
from tests.cli.conftest import Run
from tests.cli.test_heads import save_heads
from tests.tiny_folders import save_gguf


def test_a_gguf_file_becomes_a_folder_that_generates(run: Run, llama: Path, tmp_path: Path) -> None:
    file = save_gguf(llama, tmp_path / "tiny.gguf")
    out = tmp_path / "new" / "converted"
    heads = save_heads(tmp_path / "heads")
    converted = run("convert", file, "--out", out, "--heads", heads)
    assert (converted.code, converted.err) == (0, "")
    loss = r"int8-\w+, [+-]\d\.\d{3} nats a token on a fixed text "
    figures = r"\(\d\.\d{3} in float32, \d\.\d{3} converted\)\n"
    assert re.fullmatch(re.escape(f"wrote {out}: ") + loss + figures, converted.out)
    assert [path.name for path in out.parent.iterdir()] == ["converted"]
    assert not [path for path in out.iterdir() if path.is_dir()]

    generated = run(
        *("generate", "The quick brown", "--target", out, "--heads", heads),
        *("--max-new-tokens", 24, "--num-draft-tokens", "own", "--compare", "--json"),
    )
    assert (generated.code, generated.err) == (0, "")
    printed = json.loads(generated.out)
    assert printed["token_ids"] == printed["plain"]["token_ids"]
    assert len(printed["token_ids"]) == 24
    assert [len(step["drafted"]) for step in printed["steps"][:3]] == [0, 1, 1]

    both = run("convert", file, "--out", tmp_path / "both", "--heads", heads, "--hidden-states=-1")
    assert both.err == "error: give --heads or --hidden-states, one of them.\n"

    again = run("convert", llama, "--out", out)
    assert (again.code, again.out) == (2, "")
    assert again.err == f"error: {out} exists already; give a new folder.\n"
    twice = run("convert", out, "--out", tmp_path / "twice")
    assert (twice.code, twice.out) == (2, "")
    assert "is converted already; give the model that it came from" in twice.err
    assert not (tmp_path / "twice").exists()


def test_a_failure_leaves_no_folder(run: Run, tmp_path: Path) -> None:
    source, out = tmp_path / "no-model.gguf", tmp_path / "deep" / "out"
    source.write_bytes(b"GGUF\x03\x00\x00\x00")
    result = run("convert", source, "--out", out)
    assert (result.code, result.out) == (2, "")
    assert "cannot be read as GGUF" in result.err
    assert not list(out.parent.iterdir())


def test_a_draft_model_may_know_only_what_comes_often_in_a_text(
    run: Run, llama: Path, tmp_path: Path
) -> None:
    corpus, out = tmp_path / "corpus.txt", tmp_path / "few"
    corpus.write_text("abacab", encoding="utf-8")
    alone = run("convert", llama, "--out", out, "--vocabulary", 100)
    assert (alone.code, alone.out) == (2, "")
    assert "give one, with --corpus FILE" in alone.err
    missing = run("convert", llama, "--out", out, "--corpus", tmp_path / "missing.txt")
    assert (missing.code, missing.out) == (2, "")
    assert "missing.txt" in missing.err
    assert not out.exists()

    converted = run("convert", llama, "--out", out, "--corpus", corpus, "--vocabulary", 100)
    assert (converted.code, converted.err) == (0, "")
    tokenizer = load_tokenizer(llama)
    unseen = tokenizer.eos_token_ids - set(range(100))  # the first tokens fill up what the text lacks
    assert f", guessing {100 + len(unseen)} of " in converted.out
    generated = run("generate", "abacab", "--target", llama, "--draft-model", out, "--max-new-tokens", 9)
    assert generated.code == 0
