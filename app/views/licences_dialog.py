"""The licences of everything that the program consists of: components at the left, their texts at the right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QDialog, QHBoxLayout, QPlainTextEdit, QVBoxLayout, QWidget

from app.licences import Component
from app.theme import GRID, Theme
from app.views.labels import Hairline, Label
from app.views.page_list import PageList

MISSING = "This copy runs from packages that were installed one by one; each has its licence beside it."


class LicencesDialog(QDialog):
    """Reads a component's texts when it is chosen."""

    def __init__(self, theme: Theme, components: Sequence[Component], parent: QWidget | None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._components = components
        self.setWindowTitle("Licences")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(900, 620)
        self.list = PageList(theme, "Components", self, width=30 * GRID, padding=8)
        self.list.addItems([component.name for component in components])
        self.list.currentRowChanged.connect(self._show)
        self.title = Label(theme, "", self, delta=3, weight=600, wrap=True)
        self.licence = Label(theme, "" if components else MISSING, self, color="text_2", wrap=True)
        self.text = QPlainTextEdit(self)
        self.text.setReadOnly(True)
        self.text.setTabChangesFocus(True)
        self.text.setAccessibleName("Text of the licence")
        self.text.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._lay_out()
        self._restyle()
        theme.changed.connect(self._restyle)
        QShortcut(QKeySequence.StandardKey.Close, self, self.close)
        self.list.setCurrentRow(0)
        self.list.setFocus()

    def _lay_out(self) -> None:
        column = QVBoxLayout()
        column.setContentsMargins(2 * GRID, 2 * GRID, 2 * GRID, 2 * GRID)
        column.setSpacing(GRID)
        column.addWidget(self.title)
        column.addWidget(self.licence)
        column.addWidget(self.text, 1)
        whole = QHBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(0)
        whole.addWidget(self.list)
        whole.addWidget(Hairline(self._theme, self, vertical=True))
        whole.addLayout(column, 1)

    def _show(self, row: int) -> None:
        if not 0 <= row < len(self._components):
            return
        component = self._components[row]
        self.title.set_text(f"{component.name} {component.version}")
        self.licence.set_text(component.licence)
        self.licence.setVisible(bool(component.licence))
        self.text.setPlainText("\n\n\n".join(_read(text) for text in component.texts))

    def _restyle(self) -> None:
        self.text.setFont(self._theme.font(-1, mono=True))


def _read(text: Path) -> str:
    try:
        return text.read_text(encoding="utf-8", errors="replace").strip("\n")
    except OSError as error:
        return f"{text} cannot be read: {error.strerror}."
