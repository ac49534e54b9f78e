"""When a streaming answer is painted: at most 30 times a second, less often where a paint is slow."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from PySide6.QtCore import QObject, QTimer

FRAME_MS = 33
"""A streaming answer is painted at most every so many milliseconds."""


class Pacer(QObject):
    """Collects the ids of messages that have grown and hands all of them to `paint` when it is time.

    A slow paint (a huge table) is followed by a pause of four times its length, so that the window stays at hand.
    """

    def __init__(self, paint: Callable[[Collection[int]], None], parent: QObject) -> None:
        super().__init__(parent)
        self._paint = paint
        self._waiting: set[int] = set()
        self._pause = FRAME_MS
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self.flush)

    @property
    def pause_ms(self) -> int:
        """From one paint to the next."""
        return self._pause

    def add(self, message_id: int) -> None:
        """A message has grown."""
        self._waiting.add(message_id)
        if not self._timer.isActive():
            self._timer.start(self._pause)

    def discard(self, message_id: int) -> None:
        """A message is shown by other means."""
        self._waiting.discard(message_id)

    def clear(self) -> None:
        self._waiting.clear()

    def flush(self) -> None:
        """Paint now what waits."""
        self._timer.stop()
        began = time.perf_counter()
        waiting, self._waiting = self._waiting, set()
        self._paint(waiting)
        self._pause = max(FRAME_MS, round(4000 * (time.perf_counter() - began)))
