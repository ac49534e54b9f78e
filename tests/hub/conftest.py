"""A fake hub per test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import FakeHub
from hub_desk import Desk, plain_client


@pytest.fixture(autouse=True)
def quick_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spares every client the 0.1 s in which it reads certificates that nothing here asks for."""
    monkeypatch.setattr("huggingface_hub.utils._http._GLOBAL_ASYNC_CLIENT_FACTORY", plain_client)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with FakeHub() as hub:
        yield hub


@pytest.fixture
def desk(hub: FakeHub, tmp_path: Path) -> Desk:
    return Desk(hub, tmp_path)
