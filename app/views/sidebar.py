"""The list of chats with its search field, and the ways to the other pages."""

from __future__ import annotations

import time
from collections.abc import Sequence

from PySide6.QtCore import QEvent, QModelIndex, QObject, QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QAbstractItemView, QLineEdit, QListView, QMenu, QToolButton, QVBoxLayout, QWidget

from app.controllers.chats import Entry
from app.theme import GRID, Theme
from app.views.chat_list import ENTRY, ChatDelegate, ChatListModel, Index, rows
from app.views.controls import TextButton
from app.views.labels import Hairline, Label, Surface

SEARCH_DELAY_MS = 120


class Sidebar(Surface):
    """Signals: opened(chat id, message id or None), new_chat, searched(text), renamed(id, title), pin(id, on),
    duplicate(id), delete(id), export(id), models, settings."""

    opened = Signal(int, object)
    new_chat = Signal()
    searched = Signal(str)
    renamed = Signal(int, str)
    pin = Signal(int, bool)
    duplicate = Signal(int)
    delete = Signal(int)
    export = Signal(int)
    settings = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, "sidebar", parent)
        self._theme = theme
        self._current: int | None = None
        self.search = QLineEdit(self)
        self.search.setPlaceholderText("Search")
        self.search.setAccessibleName("Search chats")
        self.search.setClearButtonEnabled(True)
        self._search_icon = self.search.addAction(theme.icon("search"), QLineEdit.ActionPosition.LeadingPosition)
        for button, name in zip(self.search.findChildren(QToolButton), ("Clear search", "Search"), strict=True):
            button.setAccessibleName(name)
        self._delay = QTimer(self)
        self._delay.setSingleShot(True)
        self._delay.setInterval(SEARCH_DELAY_MS)
        self._delay.timeout.connect(lambda: self.searched.emit(self.search.text()))
        self.search.textChanged.connect(self._delay.start)
        self.search.installEventFilter(self)
        self.model = ChatListModel(self)
        self.list = QListView(self)
        self.list.setModel(self.model)
        self.list.setItemDelegate(ChatDelegate(theme, self.list))
        self.list.setAccessibleName("Chats")
        self.list.setMouseTracking(True)
        self.list.setUniformItemSizes(False)
        self.list.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.list.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.list.customContextMenuRequested.connect(self._menu)
        self.list.selectionModel().currentChanged.connect(self._chosen)
        self.list.installEventFilter(self)
        self.model.renamed.connect(self.renamed)
        new = TextButton(theme, "New chat", "New chat", self, icon="compose")
        settings = TextButton(theme, "Settings", "Settings", self, icon="settings")
        new.clicked.connect(self.new_chat)
        settings.clicked.connect(self.settings)
        self.footer = QVBoxLayout()
        """Ways to the other pages, top to bottom."""
        self.footer.setContentsMargins(GRID, GRID, GRID, GRID)
        self.footer.setSpacing(2)
        self.footer.addWidget(new)
        self.footer.addWidget(settings)
        top = QVBoxLayout()
        top.setContentsMargins(GRID + 2, GRID, GRID + 2, GRID)
        top.addWidget(self.search)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(top)
        middle = QVBoxLayout()
        middle.setContentsMargins(GRID - 2, 0, 2, 0)
        self.nothing = Label(theme, "No chat holds all of these words.", self, color="text_2", delta=-1, wrap=True)
        self.nothing.setContentsMargins(GRID + 2, GRID, GRID, 0)
        self.nothing.hide()
        middle.addWidget(self.nothing)
        middle.addWidget(self.list, 1)
        layout.addLayout(middle, 1)
        layout.addWidget(Hairline(theme, self))
        layout.addLayout(self.footer)
        theme.changed.connect(self._restyle)

    def show_entries(self, entries: Sequence[Entry]) -> None:
        self.model.set_rows(rows(entries, time.time()))
        self.nothing.setVisible(not entries and bool(self.search.text().strip()))
        self.select(self._current)

    def select(self, chat_id: int | None) -> None:
        """Mark the chat in sight without opening it again."""
        self._current = chat_id
        row = None if chat_id is None else self.model.row_of(chat_id)
        selection = self.list.selectionModel()
        selection.blockSignals(True)
        if row is None:
            selection.clear()
        else:
            self.list.setCurrentIndex(self.model.index(row))
        selection.blockSignals(False)
        self.list.viewport().update()

    def rename_current(self) -> None:
        index = self.list.currentIndex()
        if index.isValid():
            self.list.setFocus()
            self.list.edit(index)

    def _entry(self, index: Index) -> Entry | None:
        row = index.data(ENTRY) if index.isValid() else None
        return row if isinstance(row, Entry) else None

    def _chosen(self, index: QModelIndex) -> None:
        entry = self._entry(index)
        if entry is not None:
            self._current = entry.chat.id
            self.opened.emit(entry.chat.id, entry.message_id)

    def _menu(self, position: QPoint) -> None:
        index = self.list.indexAt(position)
        entry = self._entry(index)
        if entry is not None:
            menu = self.menu_for(entry, index)
            menu.exec(self.list.viewport().mapToGlobal(position))
            menu.deleteLater()

    def menu_for(self, entry: Entry, index: Index) -> QMenu:
        """What can be done with a chat."""
        chat = entry.chat
        menu = QMenu(self)
        menu.addAction("Rename", lambda: self.list.edit(index))
        menu.addAction("Unpin" if chat.pinned else "Pin", lambda: self.pin.emit(chat.id, not chat.pinned))
        menu.addAction("Duplicate", lambda: self.duplicate.emit(chat.id))
        menu.addAction("Export…", lambda: self.export.emit(chat.id))
        menu.addSeparator()
        menu.addAction("Delete", lambda: self.delete.emit(chat.id))
        return menu

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            if watched is self.search and event.key() == Qt.Key.Key_Escape:
                self.search.clear()
                return True
            if watched is self.search and event.key() == Qt.Key.Key_Down:
                self.list.setFocus()
                return True
            entry = self._entry(self.list.currentIndex())
            deleting = event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace)
            if watched is self.list and deleting and entry is not None:
                self.delete.emit(entry.chat.id)
                return True
        return super().eventFilter(watched, event)

    def _restyle(self) -> None:
        self._search_icon.setIcon(self._theme.icon("search"))
        # Another size of type makes other rows.
        self.list.scheduleDelayedItemsLayout()
        self.list.viewport().update()
