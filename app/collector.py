"""Garbage collection on the window's thread only.

Python collects cycles on whichever thread allocates, and widgets are part of cycles: collected on the engine's thread,
they would be taken apart under Qt's feet.
"""

from __future__ import annotations

import gc

from PySide6.QtCore import QObject, QTimer

INTERVAL_MS = 500


class Collector(QObject):
    """Replaces the automatic collection from `start` to `stop`; made on the window's thread."""

    def __init__(self) -> None:
        super().__init__()
        self._thresholds = gc.get_threshold()
        self._timer = QTimer(self)
        self._timer.setInterval(INTERVAL_MS)
        self._timer.timeout.connect(self.collect)

    def start(self) -> None:
        gc.disable()
        self._timer.start()

    def stop(self) -> None:
        self._timer.stop()
        gc.enable()

    def collect(self) -> None:
        """Collect the generations that are due, as the interpreter would."""
        due = [generation for generation, limit in enumerate(self._thresholds) if gc.get_count()[generation] > limit]
        if due:
            gc.collect(max(due))
