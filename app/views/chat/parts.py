"""Parts of a message: the collapsible reasoning, the line that says what went wrong, the footer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QWidget

from app.theme import Theme
from app.views.chat.text_body import TextBody
from app.views.controls import IconButton, PaintedButton, focus_ring
from app.views.labels import Label
from app.wording import plural


class Disclosure(PaintedButton):
    """A line of text with a triangle that shows and hides what is below."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, "", parent)
        self.setCheckable(True)
        self.setFixedHeight(24)
        self.toggled.connect(self.update)
        theme.changed.connect(self._fit)

    def set_text(self, text: str) -> None:
        if text != self.text():
            self.setText(text)
            self.set_name(f"{text}. Show or hide the reasoning")
            self.setToolTip("")
            self._fit()
            self.update()

    def _fit(self) -> None:
        self.setFixedWidth(QFontMetrics(self.theme.font(-1)).horizontalAdvance(self.text()) + 32)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        color = "text" if self.underMouse() else "text_2"
        icon = "chevron-down" if self.isChecked() else "chevron-right"
        painter.drawPixmap(0, 5, self.theme.pixmap(icon, color, 14, self.devicePixelRatioF()))
        painter.setPen(self.theme.color(color))
        painter.setFont(self.theme.font(-1))
        painter.drawText(QRectF(20, 0, self.width() - 20, 24), Qt.AlignmentFlag.AlignVCenter, self.text())
        if self.hasFocus():
            focus_ring(painter, QRectF(self.rect()), 6, self.theme)


class Reasoning(QWidget):
    """What the model thought, folded away behind how long it took."""

    resized = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.head = Disclosure(theme, self)
        self.body = TextBody(theme, "Reasoning", self, quiet=True)
        self.body.hide()
        self.head.toggled.connect(self._toggle)
        self.body.height_changed.connect(self.resized)
        self._final = False

    @property
    def expanded(self) -> bool:
        return self.head.isChecked()

    def set_summary(self, seconds: float | None, tokens: int | None, running: bool) -> None:
        verb = "Thinking" if running else "Thought"
        time = "" if seconds is None else f" for {seconds:.1f} s"
        amount = "" if not tokens else f" ({plural(tokens, 'token')})"
        self.head.set_text(f"{verb}{time}{amount}" + ("…" if running and seconds is None else ""))

    def show_source(self, text: str, *, final: bool) -> None:
        """The reasoning so far, `final` once nothing will follow. Rendered only where it is unfolded."""
        self._final = final
        self.body.show_source(text, final=final, render=self.expanded)

    def _toggle(self, on: bool) -> None:
        self.body.setVisible(on)
        if on:
            self.body.show_source(self.body.source, final=self._final)
        self.resized.emit()

    def restyle(self) -> None:
        self.body.restyle(render=self.expanded)

    def height_for(self, width: int) -> int:
        height = 24
        if self.expanded:
            body = self.body.height_for(width - 16)
            self.body.setGeometry(16, 28, width - 16, body)
            height += body + 8
        return height

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.expanded:
            painter = QPainter(self)
            painter.fillRect(QRectF(6, 28, 1, self.height() - 36), self._theme.color("border"))


@dataclass(frozen=True, slots=True)
class Cure:
    """A button beside an error; `action` goes to the transcript's `action` signal."""

    text: str
    action: str


class Callout(QWidget):
    """An error or a notice where it happened, with the cure as buttons."""

    action = Signal(str)

    def __init__(
        self, theme: Theme, title: str, hint: str, cures: Sequence[Cure], parent: QWidget | None = None, *, danger: bool
    ) -> None:
        super().__init__(parent)
        self._theme = theme
        self._danger = danger
        self._title = Label(theme, title, self, weight=600, wrap=True)
        self._hint = Label(theme, hint, self, color="text_2", wrap=True)
        for label in (self._title, self._hint):
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._hint.setVisible(bool(hint))
        self._buttons: list[QPushButton] = []
        for cure in cures:
            button = QPushButton(cure.text, self)
            button.clicked.connect(lambda _checked=False, cure=cure: self.action.emit(cure.action))
            self._buttons.append(button)
        self.setAccessibleName(f"{'Error' if danger else 'Notice'}: {title} {hint}")

    def height_for(self, width: int) -> int:
        inner = width - 56
        y = 12
        self._title.setGeometry(44, y, inner, self._title.heightForWidth(inner))
        y += self._title.height() + 4
        if self._hint.text():
            self._hint.setGeometry(44, y, inner, self._hint.heightForWidth(inner))
            y += self._hint.height() + 4
        x = 44
        for button in self._buttons:
            size = button.sizeHint()
            button.setGeometry(x, y + 6, size.width(), size.height())
            x += size.width() + 8
        if self._buttons:
            y += self._buttons[0].height() + 10
        return y + 8

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        kind = "danger" if self._danger else "warning"
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._theme.color(f"{kind}_soft"))
        painter.drawRoundedRect(QRectF(self.rect()), 8, 8)
        pixmap = self._theme.pixmap("warning" if self._danger else "info", kind, 18, self.devicePixelRatioF())
        painter.drawPixmap(14, 12, pixmap)


class Branches(QWidget):
    """`< 2/3 >`: which of several versions of a message is shown."""

    step = Signal(int)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        self._previous = IconButton(theme, "chevron-left", "Previous version", self, size=24, color="text_3")
        self._label = Label(theme, "", self, color="text_3", delta=-2, tabular=True)
        self._next = IconButton(theme, "chevron-right", "Next version", self, size=24, color="text_3")
        for widget in (self._previous, self._label, self._next):
            layout.addWidget(widget)
        self._previous.clicked.connect(lambda: self.step.emit(-1))
        self._next.clicked.connect(lambda: self.step.emit(1))
        self.setFixedHeight(24)

    def set_branch(self, index: int, total: int) -> None:
        """Version `index` (from 1) of `total`; hidden when there is only one."""
        self.setVisible(total > 1)
        self._label.set_text(f"{index}/{total}")
        self._label.setAccessibleName(f"Version {index} of {total}")
        self._previous.setEnabled(index > 1)
        self._next.setEnabled(index < total)
