"""A button that copies a text."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QWidget

from app.theme import Theme
from app.views.controls import IconButton


class CopyButton(IconButton):
    """Copies what `text` returns and says so for a moment."""

    def __init__(self, theme: Theme, name: str, text: Callable[[], str], parent: QWidget | None = None) -> None:
        super().__init__(theme, "copy", name, parent, size=24, color="text_3")
        self._text = text
        self.clicked.connect(self._copy)

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self._text())
        self.set_icon("check")
        QTimer.singleShot(1200, self, lambda: self.set_icon("copy"))
