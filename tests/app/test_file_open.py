"""Exported chats that are opened from the Finder."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QUrl
from PySide6.QtGui import QFileOpenEvent

from app.file_open import Application


def test_a_file_that_the_system_opens_is_passed_on(qapp: Application, tmp_path: Path) -> None:
    opened: list[Path] = []
    qapp.file_opened.connect(opened.append)
    try:
        qapp.sendEvent(qapp, QFileOpenEvent(str(tmp_path / "chat of today.json")))
        qapp.sendEvent(qapp, QFileOpenEvent(QUrl("https://example.org/chat.json")))
    finally:
        qapp.file_opened.disconnect(opened.append)
    assert opened == [tmp_path / "chat of today.json"]
