"""A question before something that cannot be undone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.theme import GRID, Theme
from app.views.labels import Label
from app.views.menus import slot


class Confirm(QDialog):
    """Shows `title` and `text`; each of `answers` is a button that closes the dialog and acts. Cancel does nothing."""

    def __init__(
        self,
        theme: Theme,
        title: str,
        text: str,
        answers: tuple[tuple[str, Callable[[], object]], ...],
        parent: QWidget | None,
    ) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(title)
        self.setMinimumWidth(420)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(3 * GRID, 2 * GRID, 3 * GRID, 2 * GRID)
        layout.setSpacing(GRID + 4)
        layout.addWidget(Label(theme, title, self, delta=2, weight=600, wrap=True))
        layout.addWidget(Label(theme, text, self, color="text_2", wrap=True))
        line = QHBoxLayout()
        line.addStretch(1)
        self.cancel = QPushButton("Cancel", self)
        # Return must not do what cannot be undone.
        self.cancel.setDefault(True)
        self.cancel.clicked.connect(self.reject)
        line.addWidget(self.cancel)
        self.buttons: list[QPushButton] = []
        for name, act in answers:
            button = QPushButton(name, self)
            button.setAutoDefault(False)
            button.clicked.connect(slot(partial(self._answer, act)))
            line.addWidget(button)
            self.buttons.append(button)
        layout.addLayout(line)

    def _answer(self, act: Callable[[], object]) -> None:
        self.accept()
        act()
