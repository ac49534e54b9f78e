"""The rows of the list of chats and how they are painted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import (
    QAbstractItemModel,
    QAbstractListModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QFontMetrics, QPainter
from PySide6.QtWidgets import QLineEdit, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from app.controllers.chats import Entry
from app.theme import Theme

Index = QModelIndex | QPersistentModelIndex
ENTRY = Qt.ItemDataRole.UserRole


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
            return QSize(100, self._scaled(34 if index.row() else 26))
        return QSize(100, self._scaled(50 if row.snippet else 32))

    def _scaled(self, height: int) -> int:
        """A height for the size of type that is set."""
        return round(height * max(1.0, self._theme.base / 13))

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
            painter.drawEllipse(QRectF(right - 6, rect.top() + self._scaled(32) / 2 - 3, 6, 6))
            right -= 14
        if row.chat.pinned:
            ratio = painter.device().devicePixelRatioF()
            painter.drawPixmap(
                int(right) - 13, int(rect.top()) + self._scaled(32) // 2 - 7, theme.pixmap("pin", "text_3", 14, ratio)
            )
            right -= 18
        font = theme.font(0, weight=500 if chosen else 400)
        painter.setFont(font)
        painter.setPen(theme.color("text"))
        space = QRectF(rect.left() + 12, rect.top(), right - rect.left() - 12, self._scaled(32))
        title = QFontMetrics(font).elidedText(row.chat.display_title, Qt.TextElideMode.ElideRight, int(space.width()))
        painter.drawText(space, Qt.AlignmentFlag.AlignVCenter, title)
        if row.snippet:
            small = theme.font(-2)
            painter.setFont(small)
            painter.setPen(theme.color("text_2"))
            line = QRectF(rect.left() + 12, rect.top() + self._scaled(26), rect.width() - 24, self._scaled(18))
            snippet = QFontMetrics(small).elidedText(row.snippet, Qt.TextElideMode.ElideRight, int(line.width()))
            painter.drawText(line, Qt.AlignmentFlag.AlignVCenter, snippet)

    def updateEditorGeometry(self, editor: QWidget, option: QStyleOptionViewItem, index: Index) -> None:
        rect = option.rect  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        editor.setGeometry(rect.adjusted(4, 2, -4, -2))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]

    def setModelData(self, editor: QWidget, model: QAbstractItemModel, index: Index) -> None:
        if isinstance(editor, QLineEdit):
            model.setData(index, editor.text(), Qt.ItemDataRole.EditRole)
