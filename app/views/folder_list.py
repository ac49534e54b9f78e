"""Folders that the user names, in a list from which each can be taken again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QHBoxLayout, QListWidget, QPushButton, QVBoxLayout, QWidget

from app.theme import GRID

_ROWS = 4
"""Folders that are seen at once; further ones by scrolling."""


class FolderList(QWidget):
    """The folders with a button to add one and a button, or the Delete key, to take out the chosen one.

    Args:
        name: of the list, for screen readers.
        ask: asks the user for a folder; None when nothing was chosen.
        changed: takes the folders after each change.
    """

    def __init__(
        self,
        name: str,
        folders: Sequence[Path],
        parent: QWidget,
        *,
        ask: Callable[[], Path | None],
        changed: Callable[[tuple[Path, ...]], object],
    ) -> None:
        super().__init__(parent)
        self._ask, self._changed = ask, changed
        self._folders: tuple[Path, ...] = ()
        self.list = QListWidget(self)
        self.list.setProperty("framed", True)
        self.list.setAccessibleName(name)
        self.list.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setMinimumWidth(30 * GRID)
        self.add_button, self.remove_button = QPushButton("Add…", self), QPushButton("Remove", self)
        self.add_button.setAccessibleName(f"{name}: add one")
        self.remove_button.setAccessibleName(f"{name}: remove the chosen one")
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(GRID)
        layout.addWidget(self.list, 1)
        buttons = QVBoxLayout()
        buttons.setSpacing(GRID - 2)
        for button in (self.add_button, self.remove_button):
            button.setAutoDefault(False)
            buttons.addWidget(button)
        buttons.addStretch(1)
        layout.addLayout(buttons)
        layout.addStretch(0)
        self.setFocusProxy(self.list)
        self.add_button.clicked.connect(self._add)
        self.remove_button.clicked.connect(self._remove)
        for key in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace):
            shortcut = QShortcut(QKeySequence(key), self.list, context=Qt.ShortcutContext.WidgetShortcut)
            shortcut.activated.connect(self._remove)
        self.list.currentRowChanged.connect(self._chosen)
        self._show(folders, 0)

    def _show(self, folders: Sequence[Path], row: int) -> None:
        self._folders = tuple(folders)
        self.list.clear()
        for folder in folders:
            self.list.addItem(str(folder))
            self.list.item(self.list.count() - 1).setToolTip(str(folder))
        self.list.setCurrentRow(min(row, len(folders) - 1))
        self.list.setVisible(bool(folders))
        self.remove_button.setVisible(bool(folders))
        self.remove_button.setEnabled(bool(folders))
        height = max(1, self.list.sizeHintForRow(0)) * min(len(folders), _ROWS)
        self.list.setFixedHeight(max(height + GRID, 2 * self.add_button.sizeHint().height() + GRID - 2))

    def _chosen(self, row: int) -> None:
        self.remove_button.setEnabled(row >= 0)

    def _add(self) -> None:
        folder = self._ask()
        if folder is not None:
            folders = tuple(dict.fromkeys((*self._folders, folder)))
            self._take(folders, folders.index(folder))

    def _remove(self) -> None:
        row = self.list.currentRow()
        if row < 0:
            return
        self._take((*self._folders[:row], *self._folders[row + 1 :]), row)
        if not self._folders:
            self.add_button.setFocus()

    def _take(self, folders: tuple[Path, ...], row: int) -> None:
        self._changed(folders)
        self._show(folders, row)
