"""Garbage collection on the window's thread only.

Python collects cycles on whichever thread allocates, and widgets are part of cycles: collected on the engine's thread,
they would be taken apart under Qt's feet.
"""

from __future__ import annotations

import gc

from PySide6.QtCore import QObject, QTimer

INTERVAL_MS = 500
OLDEST = 2
GROWTH = 1.25
"""The oldest generation is collected once it holds so many times the objects that the last time left in it."""


class Collector(QObject):
    """Replaces the automatic collection from `start` to `stop`; made on the window's thread."""

    def __init__(self) -> None:
        super().__init__()
        self._thresholds = gc.get_threshold()
        self._before = False
        self._kept = 0
        self._timer = QTimer(self)
        self._timer.setInterval(INTERVAL_MS)
        self._timer.timeout.connect(self.collect)

    def start(self) -> None:
        self._before = gc.isenabled()
        gc.disable()
        self._timer.start()

    def settle(self) -> None:
        """The program is up: what exists now stays to its end, and is not gone through any more."""
        gc.freeze()
        self._kept = 0

    def stop(self) -> None:
        self._timer.stop()
        gc.unfreeze()
        if self._before:
            gc.enable()

    def collect(self) -> None:
        """Collect the generations that are due, as the interpreter would."""
        counts = gc.get_count()
        due = max((g for g, limit in enumerate(self._thresholds) if counts[g] > limit), default=None)
        if due is None:
            return
        if due == OLDEST and len(gc.get_objects(OLDEST)) < GROWTH * self._kept:
            # Going through everything takes several frames; like the interpreter, only after enough has come.
            due = OLDEST - 1
        gc.collect(due)
        if due == OLDEST:
            self._kept = len(gc.get_objects(OLDEST))
