"""Bars by draft position."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.theme import Theme
from app.wording import percent


class PositionBars(QWidget):
    """Share of rounds that accepted at least i drafts, a bar for each i."""

    ROW = 22

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._shares: tuple[float, ...] = ()
        self._rows = 4
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)
        theme.changed.connect(self.updateGeometry)

    def show_shares(self, shares: Sequence[float] | None, rows: int) -> None:
        """`rows`: positions the head has, so that the panel keeps its height before anything is measured."""
        self._shares = tuple(shares or ())
        if rows != self._rows:
            self._rows = rows
            self.updateGeometry()
        words = ", ".join(f"{i}: {percent(s)}" for i, s in enumerate(self._shares, start=1))
        self.setAccessibleName(f"Accepted by position. {words or 'Nothing measured'}")
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(200, self._row() * max(self._rows, len(self._shares)))

    def _row(self) -> int:
        return round(self.ROW * max(1.0, self._theme.base / 13))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        font = self._theme.font(-2, tabular=True)
        painter.setFont(font)
        width, scale = self.width(), max(1.0, self._theme.base / 13)
        row, number, figure = self._row(), round(20 * scale), round(44 * scale)
        for i in range(max(self._rows, len(self._shares))):
            y = i * row
            share = self._shares[i] if i < len(self._shares) else None
            painter.setPen(self._theme.color("text_2"))
            painter.drawText(QRectF(0, y, number, row), Qt.AlignmentFlag.AlignVCenter, str(i + 1))
            right = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight
            painter.drawText(QRectF(width - figure, y, figure, row), right, percent(share))
            track = QRectF(number, y + row / 2 - 3, width - number - figure - 8, 6)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._theme.color("hairline"))
            painter.drawRoundedRect(track, 3, 3)
            if share:
                painter.setBrush(self._theme.color("accent"))
                painter.drawRoundedRect(QRectF(track.left(), track.top(), max(6.0, track.width() * share), 6), 3, 3)
