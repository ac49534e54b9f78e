"""Text, lines and backgrounds in the theme's colours."""

from __future__ import annotations

import html

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QFontMetrics, QPainter, QPaintEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QLabel, QSizePolicy, QWidget

from app.theme import Theme


class Hairline(QFrame):
    """A line of one device pixel between two parts."""

    def __init__(self, theme: Theme, parent: QWidget | None = None, *, vertical: bool = False) -> None:
        super().__init__(parent)
        self._theme = theme
        if vertical:
            self.setFixedWidth(1)
        else:
            self.setFixedHeight(1)
        theme.changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), self._theme.color("hairline"))


class Label(QLabel):
    """A label in one of the theme's colours and sizes, following both."""

    def __init__(
        self,
        theme: Theme,
        text: str = "",
        parent: QWidget | None = None,
        *,
        color: str = "text",
        delta: int = 0,
        weight: int = 400,
        tabular: bool = False,
        wrap: bool = False,
    ) -> None:
        super().__init__(text, parent)
        self._theme = theme
        self._color, self._delta, self._weight, self._tabular = color, delta, weight, tabular
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setWordWrap(wrap)
        self._restyle()
        theme.changed.connect(self._restyle)

    def set_color(self, color: str) -> None:
        if color != self._color:
            self._color = color
            self._restyle()

    def set_text(self, text: str) -> None:
        """Set the text without a repaint when it is the same."""
        if text != self.text():
            self.setText(text)

    def showEvent(self, event: QShowEvent) -> None:
        # The style sheet undoes the palette of labels that were hidden while the theme changed.
        self._restyle()
        super().showEvent(event)

    def _restyle(self) -> None:
        self.setFont(self._theme.font(self._delta, weight=self._weight, tabular=self._tabular))
        palette = self.palette()
        palette.setColor(self.foregroundRole(), self._theme.color(self._color))
        self.setPalette(palette)


def tip_of(text: str) -> str:
    """`text` as a tooltip that shows it as it is: Qt takes what looks like HTML for HTML there."""
    return f"<p style='white-space: pre-wrap'>{html.escape(text)}</p>" if "<" in text else text


class ElidedLabel(Label):
    """A line that is shortened in its middle where there is no room for it; the tooltip has all of it."""

    def __init__(
        self, theme: Theme, parent: QWidget | None = None, *, color: str = "text", delta: int = 0, weight: int = 400
    ) -> None:
        super().__init__(theme, "", parent, color=color, delta=delta, weight=weight)
        self.full = ""
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)

    def text(self) -> str:
        """All of it, also where less is shown."""
        return self.full

    def set_text(self, text: str) -> None:
        if text != self.full:
            self.full = text
            self.setToolTip(tip_of(text))
            self.setAccessibleName(text)
            self.updateGeometry()
            self._elide()

    def sizeHint(self) -> QSize:
        return QSize(QFontMetrics(self.font()).horizontalAdvance(self.full) + 2, super().sizeHint().height())

    def minimumSizeHint(self) -> QSize:
        wanted = self.sizeHint()
        return QSize(min(48, wanted.width()), wanted.height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._elide()

    def _elide(self) -> None:
        shown = QFontMetrics(self.font()).elidedText(self.full, Qt.TextElideMode.ElideMiddle, self.width())
        if shown != super().text():
            self.setText(shown)


class Surface(QWidget):
    """A part of the window filled with one token."""

    def __init__(self, theme: Theme, token: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._surface_theme = theme
        self._token = token
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        theme.changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(event.rect(), self._surface_theme.color(self._token))
