"""Fixtures and profiles of the whole suite."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from parts import part_of

# The matrices of the test models are small: more threads wait for each other more than they compute.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

settings.register_profile("local", deadline=None, print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("local"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A folder whose name is no marker of pyproject.toml is an error there: markers are strict."""
    for item in items:
        item.add_marker(part_of(item.path))


@pytest.fixture(autouse=True)
def inkstand_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keeps every test out of the user's own directories."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("INKSTAND_HOME", str(home))
    return home


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Fails a test that leaves a thread running."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + 2
    while left := [thread for thread in threading.enumerate() if thread not in before and thread.is_alive()]:
        if time.monotonic() > deadline:
            pytest.fail(f"threads left running: {[thread.name for thread in left]}")
        time.sleep(0.01)
