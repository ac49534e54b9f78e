"""What lies behind the text of a message: code panels, quote bars, rules, tints of accepted runs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import cast

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPen, QTextBlock, QTextDocument, QTextLine

from app.theme import Theme
from app.views.chat.formats import QUOTE_INDENT, CodeBlock, Decorations
from app.views.chat.look import CODE_HEAD, CODE_PAD
from app.views.chat.spans import SpanLayer

_MARGIN = 2 * (CODE_HEAD + CODE_PAD)
"""What belongs to a block may stand this far above or below its text."""


def _start(code: CodeBlock) -> int:
    return code.start


class Backdrop:
    """Paints within `clip`; everything outside is skipped without asking the layout about it."""

    def __init__(self, painter: QPainter, document: QTextDocument, theme: Theme, clip: QRectF) -> None:
        self._painter = painter
        self._document = document
        self._layout = document.documentLayout()
        self._theme = theme
        self._clip = clip

    def decorations(self, decorations: Decorations) -> None:
        first, last = self._range()
        for code in decorations.code[max(0, bisect_right(decorations.code, first, key=_start) - 1) :]:
            if code.start > last:
                break
            self._code(code)
        for start, end, depth in decorations.quotes:
            if start <= last and end >= first:
                self._quote(start, end, depth)
        for position in decorations.rules[bisect_left(decorations.rules, first) :]:
            if position > last:
                break
            y = round(self._rect(position).center().y())
            self._painter.fillRect(QRectF(0, y, self._document.textWidth(), 1), self._theme.color("hairline"))
        for position, label, depth in decorations.markers[bisect_left(decorations.markers, (first,)) :]:
            if position > last:
                break
            self._marker(position, label, depth)
        self._painter.setPen(Qt.PenStyle.NoPen)
        self._painter.setBrush(self._theme.color("code"))
        for start, end in decorations.inline_code[bisect_left(decorations.inline_code, (first,)) :]:
            if start > last:
                break
            for rect in self._lines(start, end):
                self._painter.drawRoundedRect(rect.adjusted(-3, -1, 3, 1), 4, 4)

    def spans(self, layer: SpanLayer) -> None:
        """Tints."""
        if not layer.spans:
            return
        first, last = self._range()
        self._painter.setPen(Qt.PenStyle.NoPen)
        for span in layer.since(first):
            if span.start > last:
                break
            self._painter.setBrush(self._theme.color(span.color))
            for rect in self._lines(span.start, span.end):
                self._painter.drawRoundedRect(rect.adjusted(0.5, 0, -0.5, 0), 3, 3)

    def _range(self) -> tuple[int, int]:
        """Document positions in sight: from the start of the first block to the end of the last."""
        fuzzy = Qt.HitTestAccuracy.FuzzyHit
        top = self._layout.hitTest(QPointF(0, max(0.0, self._clip.top() - _MARGIN)), fuzzy)
        bottom = self._layout.hitTest(QPointF(self._clip.right(), self._clip.bottom() + _MARGIN), fuzzy)
        end = self._document.findBlock(bottom)
        return self._document.findBlock(top).position(), end.position() + end.length()

    def _rect(self, position: int) -> QRectF:
        return self._layout.blockBoundingRect(self._document.findBlock(position))

    def _code(self, code: CodeBlock) -> None:
        first = self._document.findBlock(code.start)
        top = self._layout.blockBoundingRect(first).top() - CODE_HEAD - CODE_PAD
        bottom = self._rect(code.end).bottom() + CODE_PAD
        left = first.blockFormat().leftMargin() - CODE_PAD
        rect = QRectF(left, top, self._document.textWidth() - left, bottom - top)
        if not rect.intersects(self._clip):
            return
        self._painter.setPen(Qt.PenStyle.NoPen)
        self._painter.setBrush(self._theme.color("code"))
        self._painter.drawRoundedRect(rect, 8, 8)
        self._painter.setPen(self._theme.color("text_3"))
        self._painter.setFont(self._theme.font(-2))
        head = QRectF(rect.left() + CODE_PAD, rect.top() + 4, rect.width(), CODE_HEAD)
        self._painter.drawText(head, Qt.AlignmentFlag.AlignVCenter, code.language or "text")

    def _quote(self, start: int, end: int, depth: int) -> None:
        top, bottom = self._rect(start).top(), self._rect(end).bottom()
        rect = QRectF((depth - 1) * QUOTE_INDENT, top, 3, bottom - top)
        if rect.intersects(self._clip):
            self._painter.setPen(Qt.PenStyle.NoPen)
            self._painter.setBrush(self._theme.color("border"))
            self._painter.drawRoundedRect(rect, 1.5, 1.5)

    def _marker(self, position: int, label: str, depth: int) -> None:
        block = self._document.findBlock(position)
        rect = self._layout.blockBoundingRect(block)
        if not rect.intersects(self._clip) or not block.layout().lineCount():
            return
        line = block.layout().lineAt(0)
        left = rect.left() + line.x() - 8
        baseline = rect.top() + line.y() + line.height() - line.descent()
        if label:
            self._painter.setPen(self._theme.color("text_2"))
            self._painter.setFont(self._theme.font(1, tabular=True))
            width = self._painter.fontMetrics().horizontalAdvance(label)
            self._painter.drawText(QPointF(left - width, baseline), label)
            return
        size = line.ascent() * 0.36
        self._painter.setPen(QPen(self._theme.color("text_2"), 1) if depth % 3 == 2 else Qt.PenStyle.NoPen)
        self._painter.setBrush(Qt.BrushStyle.NoBrush if depth % 3 == 2 else self._theme.color("text_2"))
        dot = QRectF(left - size - 1, baseline - line.ascent() * 0.36 - size / 2, size, size)
        if depth % 3:
            self._painter.drawEllipse(dot)
        else:
            self._painter.drawRect(dot)

    def _lines(self, start: int, end: int) -> list[QRectF]:
        """Rectangles of the characters [start, end), one per line they stand on, within the clip."""
        result: list[QRectF] = []
        block = self._document.findBlock(start)
        while block.isValid() and block.position() < end:
            bounds = self._layout.blockBoundingRect(block)
            if bounds.top() > self._clip.bottom():
                break
            if bounds.bottom() >= self._clip.top():
                self._block_lines(block, bounds, start, end, result)
            block = block.next()
        return result

    def _block_lines(self, block: QTextBlock, bounds: QRectF, start: int, end: int, into: list[QRectF]) -> None:
        layout, base = block.layout(), block.position()
        for i in range(layout.lineCount()):
            line = layout.lineAt(i)
            first = max(start - base, line.textStart())
            last = min(end - base, line.textStart() + line.textLength())
            if first >= last:
                continue
            left, right = _x(line, first), _x(line, last)
            # The line height is stretched above the text, so the text sits at the bottom of its line.
            height = min(line.ascent() + line.descent(), line.height())
            top = bounds.top() + line.y() + line.height() - height
            into.append(QRectF(bounds.left() + left, top, max(0.0, right - left), height))


def _x(line: QTextLine, position: int) -> float:
    """Where the character stands. PySide's stubs do not know that a pair is returned."""
    x, _ = cast("tuple[float, int]", line.cursorToX(position))
    return x
