"""Folders that are whole or not there: built aside and put in place by one rename."""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from draftwise.errors import ModelError


def cache_folder() -> Path:
    """Where converted models are kept: $DRAFTWISE_CACHE, else ~/.cache/draftwise."""
    return Path(os.environ.get("DRAFTWISE_CACHE") or Path.home() / ".cache" / "draftwise")


def built_once(key: str, build: Callable[[Path], object]) -> Path:
    """The cached folder `key`; where there is none, `build` fills a folder aside that then becomes it.

    One process at a time builds a key, the others wait for it. What a killed process left behind is removed.
    """
    folder = cache_folder() / key
    if folder.is_dir():
        return folder
    with _writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(f"{folder}.lock")
        lock.acquire()
    try:
        if not folder.is_dir():
            for stale in folder.parent.glob(f"{folder.name}.partial-*"):
                shutil.rmtree(stale, ignore_errors=True)
            with whole_or_nothing(folder) as partial:
                build(partial)
    finally:
        lock.release()
    return folder


@contextmanager
def whole_or_nothing(folder: Path) -> Iterator[Path]:
    """A new folder beside `folder` that takes its place at the end, or vanishes if something fails before.

    Raises ModelError where that cannot be written.
    """
    partial = folder.with_name(f"{folder.name}.partial-{secrets.token_hex(4)}")
    with _writing(folder):
        partial.mkdir(parents=True)
    try:
        yield partial
        with _writing(folder):
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ModelError(
            f"{folder} cannot be written ({error.strerror}); give another place or set DRAFTWISE_CACHE."
        ) from None
