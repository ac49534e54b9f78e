"""Small painted controls that standard Qt does not have in this shape."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import (
    QColor,
    QEnterEvent,
    QFont,
    QFontMetrics,
    QKeyEvent,
    QPainter,
    QPaintEvent,
    QPen,
)
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from app.theme import Theme
from app.views.labels import tip_of


def focus_ring(painter: QPainter, rect: QRectF, radius: float, theme: Theme) -> None:
    """The outline that marks keyboard focus."""
    painter.setPen(QPen(theme.color("accent"), 2))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawRoundedRect(rect.adjusted(1, 1, -1, -1), radius, radius)


class PaintedButton(QAbstractButton):
    """A button that knows its name, hover and keyboard focus; subclasses paint it."""

    def __init__(self, theme: Theme, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme = theme
        self.set_name(name)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setCursor(Qt.CursorShape.ArrowCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        theme.changed.connect(self.update)

    def set_name(self, name: str) -> None:
        """The name for screen readers, shown as tooltip as well."""
        self.setAccessibleName(name)
        self.setToolTip(tip_of(name))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        # Space is Qt's key for buttons; people expect Return to work, too.
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.click()
        else:
            super().keyPressEvent(event)

    def _back(self, painter: QPainter, rect: QRectF, radius: float = 6) -> None:
        fill = "pressed" if self.isDown() else "hover" if self.underMouse() and self.isEnabled() else None
        if fill:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self.theme.color(fill))
            painter.drawRoundedRect(rect, radius, radius)


class IconButton(PaintedButton):
    """An icon that is a button. `color` is a token; checked buttons take the accent."""

    def __init__(
        self,
        theme: Theme,
        icon: str,
        name: str,
        parent: QWidget | None = None,
        *,
        size: int = 28,
        color: str = "text_2",
    ) -> None:
        super().__init__(theme, name, parent)
        self._icon = icon
        self._color = color
        self._side = size
        self._marked = False
        self.setFixedSize(size, size)

    def set_marked(self, on: bool) -> None:
        """A dot that says there is something of the user's behind the button."""
        if on != self._marked:
            self._marked = on
            self.update()

    def set_icon(self, icon: str) -> None:
        if icon != self._icon:
            self._icon = icon
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect = QRectF(self.rect())
        self._back(painter, rect)
        side = 18 if self._side >= 28 else 16
        color = "accent" if self.isCheckable() and self.isChecked() else self._color
        pixmap = self.theme.pixmap(self._icon, color, side, self.devicePixelRatioF())
        painter.setOpacity(1.0 if self.isEnabled() else 0.4)
        painter.drawPixmap(QPointF((rect.width() - side) / 2, (rect.height() - side) / 2), pixmap)
        if self._marked:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self.theme.color("accent"))
            painter.drawEllipse(QRectF(rect.width() - 9, 4, 6, 6))
        if self.hasFocus():
            focus_ring(painter, rect, 6, self.theme)


class RoundButton(PaintedButton):
    """The filled round button of the composer and of "jump to the end"."""

    def __init__(
        self, theme: Theme, icon: str, name: str, parent: QWidget | None = None, *, filled: bool = True
    ) -> None:
        super().__init__(theme, name, parent)
        self._icon = icon
        self._filled = filled
        self.setFixedSize(32, 32)

    def set_icon(self, icon: str, name: str) -> None:
        self._icon = icon
        self.set_name(name)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect = QRectF(self.rect()).adjusted(1, 1, -1, -1)
        if self._filled:
            hot = self.underMouse() or self.isDown()
            fill = "pressed" if not self.isEnabled() else "accent_hover" if hot else "accent_fill"
            icon = "on_accent" if self.isEnabled() else "text_3"
            painter.setPen(Qt.PenStyle.NoPen)
        else:
            fill, icon = ("hover" if self.underMouse() else "raised"), "text_2"
            painter.setPen(QPen(self.theme.color("border"), 1))
        painter.setBrush(self.theme.color(fill))
        painter.drawEllipse(rect.adjusted(0.5, 0.5, -0.5, -0.5))
        pixmap = self.theme.pixmap(self._icon, icon, 16, self.devicePixelRatioF())
        painter.drawPixmap(QPointF(8, 8), pixmap)
        if self.hasFocus():
            focus_ring(painter, QRectF(self.rect()), 16, self.theme)


class TextButton(PaintedButton):
    """Text with an optional icon before and a chevron after it, without a frame until the pointer is on it.

    Only one that `elides` may get narrower than its text. A `link` stands in a line of text: no margin, no fill.
    """

    def __init__(
        self,
        theme: Theme,
        text: str,
        name: str,
        parent: QWidget | None = None,
        *,
        icon: str = "",
        menu: bool = False,
        strong: bool = False,
        color: str = "text",
        delta: int = 0,
        elides: bool = False,
        link: bool = False,
    ) -> None:
        super().__init__(theme, name, parent)
        self.elides = elides
        self._link = link
        self._inset = 0 if link else 8
        self._icon = icon
        self._menu = menu
        self._strong = strong
        self._color = color
        self._delta = delta
        self.setText(text)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.updateGeometry)

    def set_text(self, text: str) -> None:
        if text != self.text():
            self.setText(text)
            self.updateGeometry()
            self.update()

    def sizeHint(self) -> QSize:
        metrics = QFontMetrics(self._font())
        width = metrics.horizontalAdvance(self.text()) + 2 * self._inset
        height = max(28, metrics.height() + 8)
        return QSize(width + (22 if self._icon else 0) + (16 if self._menu else 0), height)

    def minimumSizeHint(self) -> QSize:
        wanted = self.sizeHint()
        return QSize(min(56, wanted.width()), wanted.height()) if self.elides else wanted

    def _font(self) -> QFont:
        return self.theme.font(self._delta, weight=600 if self._strong else 400)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect = QRectF(self.rect())
        if not self._link:
            self._back(painter, rect)
        font = self._font()
        font.setUnderline(self._link and self.underMouse())
        painter.setFont(font)
        name = "accent" if self.isChecked() else self._color
        painter.setPen(self.theme.color(name if self.isEnabled() else "text_3"))
        left, right = float(self._inset), rect.width() - self._inset
        ratio, middle = self.devicePixelRatioF(), rect.height() / 2
        if self._icon:
            shade = name if name != "text" else "text_2"
            painter.drawPixmap(QPointF(left, middle - 8), self.theme.pixmap(self._icon, shade, 16, ratio))
            left += 22
        if self._menu:
            painter.drawPixmap(QPointF(right - 10, middle - 6), self.theme.pixmap("chevron-down", "text_3", 12, ratio))
            right -= 14
        text = QFontMetrics(self._font()).elidedText(self.text(), Qt.TextElideMode.ElideRight, int(right - left) + 1)
        painter.drawText(QRectF(left, 0, right - left, rect.height()), Qt.AlignmentFlag.AlignVCenter, text)
        if self.hasFocus():
            focus_ring(painter, rect, 6, self.theme)


class Switch(PaintedButton):
    """A switch with two states, dimmed where it cannot be used."""

    def __init__(self, theme: Theme, name: str, parent: QWidget | None = None) -> None:
        super().__init__(theme, name, parent)
        self.setCheckable(True)
        self.setFixedSize(38, 24)
        self.toggled.connect(self.update)

    def enterEvent(self, event: QEnterEvent) -> None:
        self.update()
        super().enterEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setOpacity(1.0 if self.isEnabled() else 0.45)
        track = QRectF(2, 2, 34, 20)
        on = self.isChecked()
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self.theme.color("accent_fill" if on else "track"))
        painter.drawRoundedRect(track, 10, 10)
        knob = QRectF(18 if on else 4, 4, 16, 16)
        painter.setBrush(QColor(0, 0, 0, 40))
        painter.drawEllipse(knob.translated(0, 0.75))
        painter.setBrush(self.theme.color("knob"))
        painter.drawEllipse(knob)
        if self.hasFocus():
            painter.setOpacity(1.0)
            focus_ring(painter, QRectF(self.rect()), 12, self.theme)
