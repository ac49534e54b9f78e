"""A fake hub per test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import FakeHub, reach_plainly
from hub_desk import Desk


@pytest.fixture(autouse=True)
def quick_client(monkeypatch: pytest.MonkeyPatch) -> None:
    reach_plainly(monkeypatch)


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        yield hub


@pytest.fixture
def desk(hub: FakeHub, tmp_path: Path) -> Desk:
    return Desk(hub, tmp_path)
