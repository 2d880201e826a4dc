"""Settings of the whole test suite."""

import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import settings

from draftwise.planning import profile

# The same examples at every run, and no limit of time for one of them.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True, scope="session")
def profiles_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is measured for the models of tests is kept apart from the user's profiles."""
    folder: Path = tmp_path_factory.mktemp("cache")
    with patch.object(profile, "cache_folder", lambda: Path(os.environ.get("DRAFTWISE_CACHE", folder))):
        yield
