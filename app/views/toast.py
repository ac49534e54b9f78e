"""A line that appears above the composer and goes by itself, with at most one button."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QRectF, QTimer
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.theme import COLUMN, Theme
from app.views.controls import IconButton, TextButton
from app.views.labels import Label


class Toast(QWidget):
    """For what needs no action, or can be undone. Stands just above the widget `above`."""

    def __init__(self, theme: Theme, parent: QWidget, above: QWidget) -> None:
        super().__init__(parent)
        self._over, self._above = parent, above
        self._theme = theme
        self._act: Callable[[], None] | None = None
        layout = QHBoxLayout(self)
        layout.setContentsMargins(16, 6, 8, 6)
        layout.setSpacing(8)
        self._label = Label(theme, "", self)
        self._button = TextButton(theme, "Undo", "Undo", self, color="accent", strong=True)
        close = IconButton(theme, "close", "Dismiss", self, size=24, color="text_3")
        for widget in (self._label, self._button, close):
            layout.addWidget(widget)
        self._button.clicked.connect(self._press)
        close.clicked.connect(self.hide)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self.hide)
        theme.changed.connect(self._restyle)
        self.hide()

    def say(self, text: str, button: str = "", act: Callable[[], None] | None = None, *, seconds: float = 6) -> None:
        """Show `text`; with `button` the reader can `act` on it."""
        self._label.setText(text)
        if button:
            self._button.set_text(button)
            self._button.set_name(button)
        self._button.setVisible(bool(button))
        self._act = act
        self.setAccessibleName(text)
        self.adjustSize()
        self.reposition()
        self.show()
        self.raise_()
        self._timer.start(round(1000 * seconds))

    def _restyle(self) -> None:
        # Labels hear of the change after this.
        QTimer.singleShot(0, self, self.reposition)

    def reposition(self) -> None:
        parent = self._over
        self._label.setWordWrap(False)
        most = min(parent.width() - 32, COLUMN)
        width, height = self.sizeHint().width(), self.sizeHint().height()
        if width > most:
            # A path and what to do about it take more than a line, and the end says what to do.
            self._label.setWordWrap(True)
            width, height = most, self.heightForWidth(most)
        self.resize(width, height)
        self.move((parent.width() - width) // 2, self._above.y() - self.height() - 12)

    def _press(self) -> None:
        self.hide()
        if self._act is not None:
            self._act()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(self._theme.color("border"), 1))
        painter.setBrush(self._theme.color("raised"))
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 10, 10)
