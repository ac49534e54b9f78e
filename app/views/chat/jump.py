"""The button that leads back to the end of the conversation."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEasingCurve, QVariantAnimation
from PySide6.QtWidgets import QScrollBar, QWidget

from app.theme import Theme
from app.views.controls import RoundButton

GLIDE_MS = 120
FAR = 240
"""Shown once the end is more than so many pixels away."""
SIDE = 32


class JumpButton(RoundButton):
    """Glides to the end where it is near and motion is welcome, else goes there at once.

    Args:
        bar: scrolls the conversation.
        arrive: brings the end into sight and follows it from then on.
    """

    def __init__(self, theme: Theme, bar: QScrollBar, arrive: Callable[[], None], parent: QWidget) -> None:
        super().__init__(theme, "arrow-down", "Jump to the latest message", parent, filled=False)
        self._bar = bar
        self._arrive = arrive
        self._glide = QVariantAnimation(self)
        self._glide.setDuration(GLIDE_MS)
        self._glide.setEasingCurve(QEasingCurve.Type.OutCubic)
        self._glide.valueChanged.connect(self._step)
        self._glide.finished.connect(arrive)
        self.clicked.connect(self._go)
        self.hide()

    def show_for(self, below: int) -> None:
        """`below`: pixels from here to the end."""
        self.setVisible(below > FAR)

    def place(self, width: int, height: int) -> None:
        """In the middle of the lower edge of an area of that size."""
        self.move((width - SIDE) // 2, height - SIDE - 16)

    def _step(self, value: int) -> None:
        self._bar.setValue(value)

    def _go(self) -> None:
        bar = self._bar
        if self.theme.reduce_motion or bar.maximum() - bar.value() > 2 * bar.pageStep():
            self._arrive()
            return
        self._glide.setStartValue(bar.value())
        self._glide.setEndValue(bar.maximum())
        self._glide.start()
