"""What somebody at the window does and reads."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.composition import Gui


def send(gui: Gui, text: str | None = None) -> None:
    """Put `text` into the composer, or leave what is there, and press Return."""
    composer = gui.window.page.composer
    if text is not None:
        composer.editor.setPlainText(text)
    QTest.keyClick(composer.editor, Qt.Key.Key_Return)


def shown(gui: Gui) -> list[str]:
    """What the user has said, as the transcript shows it."""
    return [message.content for message in gui.window.page.transcript.messages if message.role == "user"]


def said(gui: Gui) -> str:
    """What the window says below; empty where it says nothing."""
    toast = gui.window.page.toast
    return "" if toast.isHidden() else toast.accessibleName()
