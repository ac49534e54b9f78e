"""What is selected in one rendered text, and how it reads elsewhere."""

from __future__ import annotations

from PySide6.QtGui import QTextCursor, QTextDocument

from app.views.chat.markdown import LINE

PARAGRAPH = "\u2029"
"""Qt's end of a block inside a selection."""


class Selection:
    """The characters between an anchor and the place where the pointer or the keyboard has come to.

    Positions are Qt's, in UTF-16 units; one that the document does not have any more means its end.
    """

    def __init__(self, document: QTextDocument) -> None:
        self._document = document
        self._anchor = self._position = 0

    def __bool__(self) -> bool:
        return self._anchor != self._position

    @property
    def cursor(self) -> QTextCursor:
        cursor = QTextCursor(self._document)
        cursor.setPosition(min(self._anchor, self._last))
        cursor.setPosition(min(self._position, self._last), QTextCursor.MoveMode.KeepAnchor)
        return cursor

    @property
    def _last(self) -> int:
        return self._document.characterCount() - 1

    def start(self, at: int) -> None:
        """Begin at a position, with nothing selected."""
        self._anchor = self._position = at

    def extend(self, to: int) -> None:
        """Select from the anchor to a position."""
        self._position = to

    def take(self, kind: QTextCursor.SelectionType, at: int) -> None:
        """Select the word, line or the like at a position."""
        cursor = QTextCursor(self._document)
        cursor.setPosition(at)
        cursor.select(kind)
        self._anchor, self._position = cursor.selectionStart(), cursor.selectionEnd()

    def take_all(self) -> None:
        self._anchor, self._position = 0, self._last

    def clear(self) -> None:
        self._anchor = self._position

    def text(self, source: str) -> str:
        """The selection with newlines as newlines; the whole of it is `source`, what the document was rendered from."""
        start, end = sorted((self._anchor, self._position))
        if start == end:
            return ""
        if start == 0 and end >= self._last:
            return source
        selected = self.cursor.selectedText().replace(PARAGRAPH, "\n").replace(LINE, "\n")
        # Qt's own marks of where a table's cells begin and where the table ends.
        return selected.replace("\ufdd0", "").replace("\ufdd1", "\n")
