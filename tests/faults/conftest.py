"""Paths of the helpers that these tests share with those of the hub and the window, and the window's fixtures."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
for folder in ("app", "hub"):
    if str(TESTS / folder) not in sys.path:
        sys.path.append(str(TESTS / folder))

import disks  # noqa: E402
from window_fixtures import gui, no_cycle_left, no_widget_left, opened, qapp, qapp_cls, script, theme, wait  # noqa: E402

__all__ = ["gui", "no_cycle_left", "no_widget_left", "opened", "qapp", "qapp_cls", "script", "theme", "wait"]


@pytest.fixture
def small_disk(inkstand_home: Path) -> Iterator[disks.SmallDisk]:
    """A disk of 4 MB with all of the user's directories on it; needs root."""
    with disks.small(inkstand_home) as disk:
        yield disk


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that every user can look into, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="inkstand-public-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def read_only() -> Iterator[disks.ReadOnly]:
    """Makes folders read-only until the end of the test."""
    with disks.read_only() as make:
        yield make
