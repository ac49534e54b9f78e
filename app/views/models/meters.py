"""Bars: how far something is, and how memory or a volume is divided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPainterPath, QPaintEvent
from PySide6.QtWidgets import QProgressBar, QSizePolicy, QWidget

from app.theme import Theme

SCALE = 1000
"""Steps of a bar. Counts of bytes never go through Qt's integers, which have 32 bits."""


class Meter(QProgressBar):
    """How far something is."""

    def __init__(self, theme: Theme, name: str, parent: QWidget | None = None, *, height: int = 6) -> None:
        super().__init__(parent)
        self._theme = theme
        self._color = "accent_fill"
        self.setRange(0, SCALE)
        self.setTextVisible(False)
        self.setFixedHeight(height)
        self.setMinimumWidth(40)
        self.setAccessibleName(name)
        theme.changed.connect(self.update)

    def show_fraction(self, fraction: float, color: str = "accent_fill") -> None:
        """`fraction` in [0, 1]; `color` is a token."""
        if color != self._color:
            self._color = color
            self.update()
        self.setValue(int(SCALE * max(0.0, min(1.0, fraction))))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect, radius = QRectF(self.rect()), self.height() / 2
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._theme.color("pressed"))
        painter.drawRoundedRect(rect, radius, radius)
        width = rect.width() * self.value() / SCALE
        if width > 0:
            clip = QPainterPath()
            clip.addRoundedRect(rect, radius, radius)
            painter.setClipPath(clip)
            painter.setBrush(self._theme.color(self._color))
            painter.drawRoundedRect(QRectF(0, 0, max(width, rect.height()), rect.height()), radius, radius)


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a divided bar; `color` is a token."""

    value: float
    color: str


class DividedBar(QWidget):
    """Parts beside each other, against a whole; what exceeds it is tinted."""

    def __init__(self, theme: Theme, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._parts: Sequence[Part] = ()
        self._whole = 0.0
        self.setFixedHeight(14)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(name)
        theme.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(320, 14)

    def show_parts(self, parts: Sequence[Part], whole: float) -> None:
        self._parts, self._whole = parts, whole
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect = QRectF(self.rect())
        clip = QPainterPath()
        clip.addRoundedRect(rect, 5, 5)
        painter.setClipPath(clip)
        painter.fillRect(rect, self._theme.color("pressed"))
        needed = sum(part.value for part in self._parts)
        full = max(needed, self._whole)
        if full <= 0:
            return
        left = 0.0
        for part in self._parts:
            width = rect.width() * part.value / full
            painter.fillRect(QRectF(left, 0, width, rect.height()), self._theme.color(part.color))
            left += width
            if width > 2:
                painter.fillRect(QRectF(left - 1, 0, 1, rect.height()), self._theme.color("window"))
        if needed > self._whole > 0:
            end = rect.width() * self._whole / full
            beyond = self._theme.color("danger")
            beyond.setAlphaF(0.75)
            painter.fillRect(QRectF(end, 0, rect.width() - end, rect.height()), beyond)
            painter.fillRect(QRectF(end - 1, 0, 2, rect.height()), self._theme.color("window"))


class Swatch(QWidget):
    """The colour of a part, in a legend."""

    def __init__(self, theme: Theme, color: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme, self._color = theme, color
        self.setFixedSize(10, 10)
        theme.changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._theme.color(self._color))
        painter.drawRoundedRect(QRectF(self.rect()), 3, 3)
