"""The cache of conversions: whole or not there, built once, whoever else is building or was killed."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from draftwise.errors import ModelError
from draftwise.models.cache import built_once, cache_folder, whole_or_nothing


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAFTWISE_CACHE", str(tmp_path / "deep" / "cache"))
    return tmp_path / "deep" / "cache"


def write(folder: Path) -> None:
    (folder / "model").write_text("whole")


def test_a_key_is_built_once(own_cache: Path) -> None:
    first = built_once("key", write)
    assert first == own_cache / "key"
    assert (first / "model").read_text() == "whole"
    assert built_once("key", lambda folder: pytest.fail("built again")) == first
    assert built_once("other", write) != first


def test_without_the_variable_the_cache_is_at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DRAFTWISE_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "draftwise"


def test_a_failure_leaves_nothing_and_the_next_attempt_succeeds(own_cache: Path) -> None:
    def fail(folder: Path) -> None:
        write(folder)
        raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        built_once("key", fail)
    assert not [path for path in own_cache.iterdir() if path.is_dir()]
    assert (built_once("key", write) / "model").exists()


def test_the_rest_of_a_killed_process_is_removed(own_cache: Path) -> None:
    stale = own_cache / "key.partial-00000000"
    stale.mkdir(parents=True)
    (stale / "model").write_text("half")
    assert [path.name for path in built_once("key", write).iterdir()] == ["model"]
    assert not stale.exists()


def test_only_one_of_several_builds(own_cache: Path) -> None:
    started, building = threading.Barrier(4), []

    def build(folder: Path) -> None:
        building.append(folder)
        write(folder)

    def ask(_: int) -> Path:
        started.wait()
        return built_once("key", build)

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(ask, range(4))) == {own_cache / "key"}
    assert len(building) == 1


def test_a_folder_that_is_not_there_yet_is_nowhere_to_be_seen(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with whole_or_nothing(folder) as partial:
        write(partial)
        assert not folder.exists()
    assert (folder / "model").exists()
    assert list(tmp_path.glob("model*")) == [folder]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DRAFTWISE_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match=r"file.key cannot be written .*DRAFTWISE_CACHE"):
        built_once("key", write)
