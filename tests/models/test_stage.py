"""Stages of a conversion in processes of their own: progress and errors come back, and nothing else."""

import os
import sys
import time
from pathlib import Path

import pytest

from draftwise.errors import ModelError, OptionError
from draftwise.models.stage import run_stage
from draftwise.progress import Progress


def succeed(out: str, *, progress: Progress) -> None:
    progress("counting", 0.25)
    print("what a library prints")
    Path(out).write_text(str(os.getpid()))
    progress("counting", 1.0)


def refuse(*, progress: Progress) -> None:
    raise OptionError("this option is refused.")


def crash(*, progress: Progress) -> None:
    raise RuntimeError("something broke")


def die(*, progress: Progress) -> None:
    sys.stdout.flush()
    os.kill(os.getpid(), 9)


def sleep(out: str, *, progress: Progress) -> None:
    progress(str(os.getpid()), 0.0)
    time.sleep(60)
    Path(out).write_text("woke up")


def silent(stage: str, fraction: float) -> None:
    pass


def test_it_runs_in_another_process_and_tells_its_progress(tmp_path: Path) -> None:
    seen: list[tuple[str, float]] = []
    run_stage(f"{__name__}:succeed", lambda *at: seen.append(at), out=str(tmp_path / "pid"))
    assert seen == [("counting", 0.25), ("counting", 1.0)]
    assert int((tmp_path / "pid").read_text()) != os.getpid()


def test_its_error_is_raised_here() -> None:
    with pytest.raises(OptionError, match=r"^this option is refused\.$"):
        run_stage(f"{__name__}:refuse", silent)


def test_a_crash_is_told_in_one_line() -> None:
    with pytest.raises(ModelError, match=r"^.*:crash failed \(RuntimeError: something broke\)") as raised:
        run_stage(f"{__name__}:crash", silent)
    assert "\n" not in str(raised.value)


def test_a_killed_process_suggests_why() -> None:
    with pytest.raises(ModelError, match=r"killed, probably for want of memory"):
        run_stage(f"{__name__}:die", silent)


def test_an_interruption_ends_it(tmp_path: Path) -> None:
    def interrupt(pid: str, fraction: float) -> None:
        raise KeyboardInterrupt(pid)

    with pytest.raises(KeyboardInterrupt) as interrupted:
        run_stage(f"{__name__}:sleep", interrupt, out=str(tmp_path / "out"))
    with pytest.raises(ProcessLookupError):
        os.kill(int(interrupted.value.args[0]), 0)
