import builtins
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from draftwise import plots
from draftwise.errors import OptionError, UnsupportedError


def test_a_picture_is_saved_twice_and_its_text_stays_text(tmp_path: Path) -> None:
    figure, (left, right) = plots.axes(columns=2)
    plots.curves(left, [0, 1], {"rising": [0, 1], "falling": [1, 0]}, "time", "height")
    plots.grouped_bars(
        right,
        ["a", "b"],
        {"one": [1.0, 2.0], "two": [2.0, float("nan")]},
        {"one": [(0.5, 1.5)] * 2, "two": [(1.5, 2.5)] * 2},
    )
    plots.save({"both": figure}, tmp_path / "new")
    assert sorted(file.name for file in (tmp_path / "new").iterdir()) == ["both.png", "both.svg"]
    words = {text for text in ElementTree.fromstring(plots.svg(figure)).itertext() if text.strip()}
    assert {"rising", "falling", "time", "height", "one", "two", "a", "b"} <= {word.strip() for word in words}


def test_the_same_picture_is_the_same_file() -> None:
    def drawn() -> str:
        figure, (ax,) = plots.axes()
        plots.curves(ax, [0, 1], {"line": [0, 1]}, "x", "y")
        return plots.svg(figure)

    assert drawn() == drawn()


def test_no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **named: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UnsupportedError, match=r"install draftwise\[plots\]"):
        plots.axes()


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="cannot be written"):
        plots.save({}, tmp_path / "file")
    with pytest.raises(OptionError, match="cannot be written"):
        plots.refuse_unwritable(tmp_path / "file")
    plots.refuse_unwritable(tmp_path / "new" / "pictures")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
