"""The list at the left of a window with pages, in the theme's colours while both are in sight."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QListWidget, QWidget

from app.theme import Theme


class PageList(QListWidget):
    """Args:
    name: for those who do not see it.
    width: in pixels at the usual size of type; as its place is without one.
    padding: in pixels around the entries.
    """

    def __init__(
        self, theme: Theme, name: str, parent: QWidget | None = None, *, width: int | None = None, padding: int = 0
    ) -> None:
        super().__init__(parent)
        self._theme = theme
        self._width, self._padding = width, padding
        self.setAccessibleName(name)
        self.setSpacing(1)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._restyle()
        theme.changed.connect(self._restyle)

    def _restyle(self) -> None:
        tokens = self._theme.tokens
        if self._width is not None:
            self.setFixedWidth(round(self._width * max(1.0, self._theme.base / 13)))
        self.setStyleSheet(
            f"QListWidget {{ padding: {self._padding}px; background: {tokens.sidebar}; }}"
            "QListWidget::item { padding: 6px 8px; border-radius: 6px; }"
            f"QListWidget::item:selected {{ background: {tokens.selected}; color: {tokens.text}; }}"
        )
