"""The list of chats with its search field, and the ways to the other pages."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import (
    QAbstractItemModel,
    QAbstractListModel,
    QEvent,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QPoint,
    QRectF,
    QSize,
    Qt,
    QTimer,
    Signal,
)
from PySide6.QtGui import QFontMetrics, QKeyEvent, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QLineEdit,
    QListView,
    QMenu,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app.controllers.chats import Entry
from app.theme import GRID, Theme
from app.views.controls import Hairline, Surface, TextButton

Index = QModelIndex | QPersistentModelIndex
ENTRY = Qt.ItemDataRole.UserRole
SEARCH_DELAY_MS = 120


@dataclass(frozen=True, slots=True)
class Section:
    """A heading between chats."""

    title: str


Row = Entry | Section


def section(moment: float, now: float) -> str:
    """The heading under which a chat of that time stands."""
    today = time.localtime(now)
    midnight = now - (today.tm_hour * 3600 + today.tm_min * 60 + today.tm_sec)
    if moment >= midnight:
        return "Today"
    if moment >= midnight - 86400:
        return "Yesterday"
    if moment >= midnight - 7 * 86400:
        return "Previous 7 days"
    return "Earlier"


def rows(entries: Sequence[Entry], now: float) -> list[Row]:
    """Entries with headings between them; search results stand under one."""
    result: list[Row] = []
    last = ""
    for entry in entries:
        found = entry.snippet or entry.message_id is not None
        heading = "Results" if found else "Pinned" if entry.chat.pinned else section(entry.chat.updated_at, now)
        if heading != last:
            result.append(Section(heading))
            last = heading
        result.append(entry)
    return result


class ChatListModel(QAbstractListModel):
    """Signal: renamed(chat id, title)."""

    renamed = Signal(int, str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: list[Row] = []

    def set_rows(self, new: list[Row]) -> None:
        if len(new) == len(self._rows) and [_key(r) for r in new] == [_key(r) for r in self._rows]:
            self._rows = new
            self.dataChanged.emit(self.index(0), self.index(len(new) - 1))
            return
        self.beginResetModel()
        self._rows = new
        self.endResetModel()

    def row_of(self, chat_id: int) -> int | None:
        return next((i for i, r in enumerate(self._rows) if isinstance(r, Entry) and r.chat.id == chat_id), None)

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 (Qt's signature)
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        row = self._rows[index.row()]
        if role == ENTRY:
            return row
        if isinstance(row, Section):
            return row.title if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole) else None
        title = row.chat.display_title
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.EditRole):
            return title
        if role == Qt.ItemDataRole.AccessibleTextRole:
            marks = ", pinned" * row.chat.pinned + ", answering" * row.busy
            return f"{title}{marks}"
        return None

    def flags(self, index: Index) -> Qt.ItemFlag:
        if isinstance(self._rows[index.row()], Section):
            return Qt.ItemFlag.NoItemFlags
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsEditable

    def setData(self, index: Index, value: object, role: int = Qt.ItemDataRole.EditRole) -> bool:
        row = self._rows[index.row()]
        if role != Qt.ItemDataRole.EditRole or not isinstance(row, Entry) or not isinstance(value, str):
            return False
        if value.strip() != row.chat.display_title:
            self.renamed.emit(row.chat.id, value.strip())
        return True


def _key(row: Row) -> object:
    return row.title if isinstance(row, Section) else (row.chat.id, bool(row.snippet))


class ChatDelegate(QStyledItemDelegate):
    """Paints a row."""

    def __init__(self, theme: Theme, parent: QObject) -> None:
        super().__init__(parent)
        self._theme = theme

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        row = index.data(ENTRY)
        if isinstance(row, Section):
            return QSize(100, 34 if index.row() else 26)
        return QSize(100, 50 if row.snippet else 32)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        theme, row = self._theme, index.data(ENTRY)
        rect = QRectF(option.rect)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]
        state: QStyle.StateFlag = option.state  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if isinstance(row, Section):
            painter.setPen(theme.color("text_3"))
            painter.setFont(theme.font(-2, weight=600))
            painter.drawText(rect.adjusted(12, 0, -8, -5), Qt.AlignmentFlag.AlignBottom, row.title)
        else:
            chosen = bool(state & QStyle.StateFlag.State_Selected)
            hovered = bool(state & QStyle.StateFlag.State_MouseOver)
            if chosen or hovered:
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(theme.color("selected" if chosen else "hover"))
                painter.drawRoundedRect(rect.adjusted(2, 1, -2, -1), 6, 6)
            self._entry(painter, rect, row, chosen)
        painter.restore()

    def _entry(self, painter: QPainter, rect: QRectF, row: Entry, chosen: bool) -> None:
        theme = self._theme
        right = rect.right() - 12
        if row.busy:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.color("accent"))
            painter.drawEllipse(QRectF(right - 6, rect.top() + 13, 6, 6))
            right -= 14
        if row.chat.pinned:
            ratio = painter.device().devicePixelRatioF()
            painter.drawPixmap(int(right) - 13, int(rect.top()) + 9, theme.pixmap("pin", "text_3", 14, ratio))
            right -= 18
        font = theme.font(0, weight=500 if chosen else 400)
        painter.setFont(font)
        painter.setPen(theme.color("text"))
        space = QRectF(rect.left() + 12, rect.top(), right - rect.left() - 12, 32)
        title = QFontMetrics(font).elidedText(row.chat.display_title, Qt.TextElideMode.ElideRight, int(space.width()))
        painter.drawText(space, Qt.AlignmentFlag.AlignVCenter, title)
        if row.snippet:
            small = theme.font(-2)
            painter.setFont(small)
            painter.setPen(theme.color("text_2"))
            line = QRectF(rect.left() + 12, rect.top() + 26, rect.width() - 24, 18)
            snippet = QFontMetrics(small).elidedText(row.snippet, Qt.TextElideMode.ElideRight, int(line.width()))
            painter.drawText(line, Qt.AlignmentFlag.AlignVCenter, snippet)

    def updateEditorGeometry(self, editor: QWidget, option: QStyleOptionViewItem, index: Index) -> None:
        rect = option.rect  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        editor.setGeometry(rect.adjusted(4, 2, -4, -2))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]

    def setModelData(self, editor: QWidget, model: QAbstractItemModel, index: Index) -> None:
        if isinstance(editor, QLineEdit):
            model.setData(index, editor.text(), Qt.ItemDataRole.EditRole)


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
        middle.addWidget(self.list)
        layout.addLayout(middle, 1)
        layout.addWidget(Hairline(theme, self))
        layout.addLayout(self.footer)
        theme.changed.connect(self._restyle)

    def show_entries(self, entries: Sequence[Entry]) -> None:
        self.model.set_rows(rows(entries, time.time()))
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
        self.list.viewport().update()
