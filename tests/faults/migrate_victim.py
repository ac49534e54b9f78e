"""Opening a history of an older version in a process of its own."""

from __future__ import annotations

from pathlib import Path

from app.store.history import History


def run(path: str, marker: str) -> None:
    """Opens it, which brings it up to date."""
    Path(marker).touch()
    History.open(Path(path)).close()
