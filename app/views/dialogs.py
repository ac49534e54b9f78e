"""A small window with a text to read and copy, such as the report of a bug."""

from __future__ import annotations

from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QDialog, QHBoxLayout, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from app.theme import GRID, Theme
from app.views.labels import Label


class TextDialog(QDialog):
    """A text to read and copy."""

    def __init__(self, theme: Theme, title: str, explanation: str, text: str, parent: QWidget | None) -> None:
        super().__init__(parent)
        self.setWindowTitle(title)
        self.resize(680, 480)
        self.view = QPlainTextEdit(text, self)
        self.view.setReadOnly(True)
        self.view.setFont(theme.font(-1, mono=True))
        self.view.setAccessibleName(title)
        copy, close = QPushButton("Copy", self), QPushButton("Close", self)
        copy.setProperty("primary", True)
        copy.setAutoDefault(False)
        close.setDefault(True)
        copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(text))
        close.clicked.connect(self.accept)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(2 * GRID, 2 * GRID, 2 * GRID, 2 * GRID)
        layout.setSpacing(GRID + 4)
        layout.addWidget(Label(theme, title, self, delta=3, weight=600))
        if explanation:
            layout.addWidget(Label(theme, explanation, self, color="text_2", wrap=True))
        layout.addWidget(self.view, 1)
        line = QHBoxLayout()
        line.addStretch(1)
        line.addWidget(copy)
        line.addWidget(close)
        layout.addLayout(line)
