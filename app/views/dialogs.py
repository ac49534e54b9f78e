"""Small windows: a report of a bug, a text to read, the system prompt of a chat."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QDialog, QHBoxLayout, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from app.theme import GRID, Theme
from app.views.controls import Label


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


class PromptDialog(QDialog):
    """The system prompt of one chat."""

    def __init__(self, theme: Theme, text: str, save: Callable[[str], None], parent: QWidget | None) -> None:
        super().__init__(parent)
        self.setWindowTitle("System prompt")
        self.resize(560, 320)
        self._save = save
        self.editor = QPlainTextEdit(text, self)
        self.editor.setPlaceholderText("You are a helpful assistant that answers in one paragraph.")
        self.editor.setFont(theme.font())
        self.editor.setTabChangesFocus(True)
        self.editor.setAccessibleName("System prompt")
        cancel, keep = QPushButton("Cancel", self), QPushButton("Save", self)
        keep.setProperty("primary", True)
        cancel.clicked.connect(self.reject)
        keep.clicked.connect(self._accept)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(2 * GRID, 2 * GRID, 2 * GRID, 2 * GRID)
        layout.setSpacing(GRID + 4)
        layout.addWidget(Label(theme, "System prompt", self, delta=3, weight=600))
        note = "What the model is told before this chat begins. It holds for this chat only, from the next answer on."
        layout.addWidget(Label(theme, note, self, color="text_2", wrap=True))
        layout.addWidget(self.editor, 1)
        line = QHBoxLayout()
        line.addStretch(1)
        line.addWidget(cancel)
        line.addWidget(keep)
        layout.addLayout(line)

    def _accept(self) -> None:
        self._save(self.editor.toPlainText().strip())
        self.accept()
