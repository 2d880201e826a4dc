from pathlib import Path

import pytest

from draftwise.errors import OptionError
from draftwise.journal import Journal, digest

CONDITIONS = {"seed": 0, "models": ["a", "b"], "dtype": None}


def journal(file: Path, **other: object) -> Journal:
    return Journal(file, {**CONDITIONS, **other})


def test_what_was_added_is_there_again(tmp_path: Path) -> None:
    one = journal(tmp_path / "new" / "parts.jsonl")
    assert one.read() == []
    one.rewrite([])
    one.add([{"a": 1}, {"b": [2.5]}])
    one.add([{"c": "é"}])
    assert journal(tmp_path / "new" / "parts.jsonl").read() == [{"a": 1}, {"b": [2.5]}, {"c": "é"}]
    one.rewrite([{"c": 3}])
    assert one.read() == [{"c": 3}]
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["parts.jsonl"]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "parts.jsonl"
    one = journal(file)
    one.rewrite([{"a": 1}])
    one.add([{"b": 2}])
    file.write_text(file.read_text()[:-4])
    again = journal(file)
    again.rewrite(again.read())
    again.add([{"c": 3}])
    assert journal(file).read() == [{"a": 1}, {"c": 3}]


def test_another_measurement_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "parts.jsonl"
    journal(file).rewrite([{"a": 1}])
    before = file.read_bytes()
    with pytest.raises(
        OptionError, match=r"conditions \(seed: 0 there, 1 here; more: missing there, 2 here\)"
    ):
        journal(file, seed=1, more=2).read()
    with pytest.raises(OptionError, match=r"\(dtype: None there, missing here\)"):
        Journal(file, {"seed": 0, "models": ("a", "b")}).read()
    assert file.read_bytes() == before


@pytest.mark.parametrize("content", ["", "words\n", "[]\n", '{"conditions": 3}\n', '{"a": 1}\n'])
def test_something_else_is_not_overwritten(content: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(content)
    with pytest.raises(OptionError, match="something other than what this command writes"):
        journal(tmp_path / "file").read()


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xff\xfe")
    with pytest.raises(OptionError, match="cannot be read"):
        journal(tmp_path / "file").read()
    with pytest.raises(OptionError, match="cannot be written"):
        journal(tmp_path / "file" / "below").rewrite([])


def test_a_digest_tells_values_apart() -> None:
    assert digest(("a", 1)) == digest(("a", 1)) != digest(("a", 2))
    assert len(digest("")) == 8
