import json
from pathlib import Path

import pytest

from draftwise.benchmarking.records import Group, Log, Pass, Run, Setting
from draftwise.errors import OptionError

CONDITIONS = {"seed": 0}


def run(prompt: int, drafter: str = "none", round: int = 0) -> Run:
    setting = Setting("target", drafter, None if drafter == "none" else 4, 0.0)
    passes = (Pass(9, 4, 4, 3, 2, 3, 0.1, 0.2, 0.05), Pass(5, 4, 2, 2, 2, 3, 0.1, 0.2, 0.05))
    return Run(setting, "family", prompt, round, "0badf00d", passes)


def test_what_was_added_is_there_again(tmp_path: Path) -> None:
    log = Log(tmp_path / "new" / "runs.jsonl", CONDITIONS, 2)
    log.add([run(0), run(0, "lookup")])
    log.add([run(1), run(1, "lookup")])
    again = Log(tmp_path / "new" / "runs.jsonl", CONDITIONS, 2)
    assert again.runs == log.runs == [run(0), run(0, "lookup"), run(1), run(1, "lookup")]
    assert again.groups == {Group("target", 0.0, 0, 0), Group("target", 0.0, 1, 0)}


def test_a_line_that_was_cut_off_takes_its_group_with_it(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    log = Log(file, CONDITIONS, 2)
    log.add([run(0), run(0, "lookup")])
    log.add([run(1), run(1, "lookup")])
    file.write_text(file.read_text()[:-20])
    again = Log(file, CONDITIONS, 2)
    assert again.groups == {Group("target", 0.0, 0, 0)}
    assert again.runs == [run(0), run(0, "lookup")]
    again.add([run(1), run(1, "lookup")])
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert Log(file, CONDITIONS, 2).runs == log.runs
    assert lines[-1]["passes"][1] == {
        "fed": 5, "drafted": 4, "depth": 2, "verified": 2, "accepted": 2, "emitted": 3,
            "draft": 0.1, "verify": 0.2, "other": 0.05
    }  # fmt: skip


def test_another_benchmark_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    Log(file, CONDITIONS, 2).add([run(0)])
    before = file.read_bytes()
    with pytest.raises(OptionError, match=r"begun under other conditions \(seed: 0 there, 1 here\)"):
        Log(file, {"seed": 1}, 2)
    assert file.read_bytes() == before
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(OptionError, match="cannot be read"):
        Log(file, CONDITIONS, 2)
    with pytest.raises(OptionError, match="Not a directory"):
        Log(file / "below" / "runs.jsonl", CONDITIONS, 2)
