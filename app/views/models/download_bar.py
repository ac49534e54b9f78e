"""The slim line in the sidebar that shows on every page while something downloads."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.theme import GRID, Theme
from app.views.controls import PaintedButton, focus_ring


class DownloadBar(PaintedButton):
    """Click to see the downloads."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, "Downloads", parent)
        self._title = self._figures = ""
        self._share: float = 0.0
        self._stalled = False
        self._line = 0
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self._scale)
        self._scale()
        self.hide()

    def sizeHint(self) -> QSize:
        return QSize(20 * GRID, self.height())

    def _scale(self) -> None:
        self._line = QFontMetrics(self.theme.font(-2)).height()
        self.setFixedHeight(2 * self._line + 14)

    def show_overall(self, overall: tuple[str, str, float, bool] | None) -> None:
        """Title, figures, share and whether it stalls; None hides the bar."""
        self.setVisible(overall is not None)
        if overall is None or overall == (self._title, self._figures, self._share, self._stalled):
            return
        self._title, self._figures, self._share, self._stalled = overall
        self.set_name(f"Downloading {self._title}: {self._figures}")
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect = QRectF(self.rect())
        self._back(painter, rect)
        line = QRectF(8, 3, rect.width() - 16, self._line)
        font = self.theme.font(-2, weight=500)
        painter.setFont(font)
        painter.setPen(self.theme.color("text"))
        title = QFontMetrics(font).elidedText(self._title, Qt.TextElideMode.ElideMiddle, int(line.width()))
        painter.drawText(line, Qt.AlignmentFlag.AlignVCenter, title)
        painter.setFont(self.theme.font(-2, tabular=True))
        painter.setPen(self.theme.color("warning" if self._stalled else "text_2"))
        painter.drawText(line.translated(0, self._line), Qt.AlignmentFlag.AlignVCenter, self._figures)
        track = QRectF(8, rect.height() - 6, rect.width() - 16, 3)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self.theme.color("pressed"))
        painter.drawRoundedRect(track, 1.5, 1.5)
        done = max(3.0, (self.width() - 16) * self._share)
        painter.setBrush(self.theme.color("warning" if self._stalled else "accent_fill"))
        painter.drawRoundedRect(QRectF(track.left(), track.top(), done, 3), 1.5, 1.5)
        if self.hasFocus():
            focus_ring(painter, rect, 6, self.theme)
