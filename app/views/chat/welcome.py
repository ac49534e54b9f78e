"""The page before the first message: what is loaded, three prompts to try, and what to watch."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QProgressBar, QSizePolicy, QVBoxLayout, QWidget

from app.theme import COLUMN, GRID, Theme
from app.views.controls import PaintedButton, focus_ring
from app.views.labels import Hairline, Label, Surface
from app.views.scrolling import scrolling

PROMPTS = (
    ("A haiku, explained", "Write a haiku about tide pools, then explain its structure."),
    ("A little code", "Write a Python function that adds two numbers."),
    ("How this works", "What is speculative decoding?"),
)
WATCH = (
    "Flip the MTP switch in the middle of an answer and watch tokens per round and tok/s at the right: "
    "the speed changes, the quality does not; at temperature 0 the text stays the same word for word."
)


class PromptRow(PaintedButton):
    """An example that can be clicked."""

    def __init__(self, theme: Theme, title: str, prompt: str, parent: QWidget) -> None:
        super().__init__(theme, f"Try: {prompt}", parent)
        self.setToolTip("")
        self.prompt = prompt
        self._title = title
        theme.changed.connect(self._scale)
        self._scale()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        return QSize(480, self.height())

    def _scale(self) -> None:
        self.setFixedHeight(max(7 * GRID, 2 * self.theme.base + 30))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect = QRectF(self.rect()).adjusted(0, 2, 0, -2)
        self._back(painter, rect, 8)
        painter.setPen(self.theme.color("text"))
        painter.setFont(self.theme.font(0, weight=600))
        painter.drawText(rect.adjusted(12, 7, -40, 0), Qt.AlignmentFlag.AlignTop, self._title)
        painter.setPen(self.theme.color("text_2"))
        painter.setFont(self.theme.font(0))
        text = painter.fontMetrics().elidedText(self.prompt, Qt.TextElideMode.ElideRight, int(rect.width()) - 52)
        painter.drawText(rect.adjusted(12, 0, -40, -7), Qt.AlignmentFlag.AlignBottom, text)
        pixmap = self.theme.pixmap("chevron-right", "text_3", 16, self.devicePixelRatioF())
        painter.drawPixmap(int(rect.right()) - 28, int(rect.center().y()) - 8, pixmap)
        if self.hasFocus():
            focus_ring(painter, rect, 8, self.theme)


class Welcome(Surface):
    """Signal: chosen(prompt)."""

    chosen = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, "window", parent)
        self._theme = theme
        column = QWidget(self)
        column.setMaximumWidth(COLUMN - 10 * GRID)
        layout = QVBoxLayout(column)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(GRID)
        self._title = Label(theme, "", column, delta=9, weight=600, wrap=True)
        self._subtitle = Label(theme, "", column, color="text_2", wrap=True)
        self._progress = QProgressBar(column)
        self._progress.setTextVisible(False)
        self._progress.setFixedHeight(4)
        self._progress.setRange(0, 1000)
        self._progress.setAccessibleName("Loading the model")
        layout.addWidget(self._title)
        layout.addWidget(self._subtitle)
        layout.addWidget(self._progress)
        layout.addSpacing(GRID)
        self.rows: list[PromptRow] = []
        for i, (title, prompt) in enumerate(PROMPTS):
            if i:
                layout.addWidget(Hairline(theme, column))
            row = PromptRow(theme, title, prompt, column)
            row.clicked.connect(lambda _checked=False, prompt=prompt: self.chosen.emit(prompt))
            layout.addWidget(row)
            self.rows.append(row)
        layout.addSpacing(GRID)
        self._watch = QWidget(column)
        watch = QHBoxLayout(self._watch)
        watch.setContentsMargins(0, 0, 0, 0)
        watch.setSpacing(GRID)
        self._icon = _Icon(theme, "spark", column)
        watch.addWidget(self._icon, 0, Qt.AlignmentFlag.AlignTop)
        watch.addWidget(Label(theme, WATCH, column, color="text_2", wrap=True), 1)
        layout.addWidget(self._watch)
        content = Surface(theme, "window")
        outer = QVBoxLayout(content)
        outer.setContentsMargins(3 * GRID, 2 * GRID, 3 * GRID, 2 * GRID)
        outer.addStretch(2)
        line = QHBoxLayout()
        line.addStretch(1)
        line.addWidget(column, 8)
        line.addStretch(1)
        outer.addLayout(line)
        outer.addStretch(3)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(scrolling(content, self))

    def show_model(self, title: str, subtitle: str, fraction: float | None = None, *, drafts: bool = True) -> None:
        """What is loaded, or how far it has come (`fraction` in [0, 1]). `drafts`: there is a switch to flip."""
        self._watch.setVisible(drafts)
        self._title.set_text(title)
        self._subtitle.set_text(subtitle)
        self._progress.setVisible(fraction is not None)
        self._progress.setValue(round(1000 * (fraction or 0.0)))


class _Icon(QWidget):
    """An icon that is only an ornament."""

    def __init__(self, theme: Theme, name: str, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme, self._name = theme, name
        self.setFixedSize(20, 20)

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).drawPixmap(0, 0, self._theme.pixmap(self._name, "accent", 18, self.devicePixelRatioF()))
