"""The only crossing from worker threads to the window: append to a list, wake once, swap the list on arrival.

An engine may report hundreds of rounds a second. They are handed over once a frame at most: more often costs the
window's thread time, and with it the interpreter, which the engine needs as well.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from PySide6.QtCore import QObject, Qt, QTimer, Signal

Stamped = tuple[float, Any]
"""When it was posted (`time.monotonic`) and what."""
Sink = Callable[[Sequence[Stamped]], None]
FRAME_S = 0.016


class Bridge(QObject):
    """Delivers to the thread it was made in. However many events come within a frame, each sink is called once with
    all of them, in order; the first after a pause is delivered at once."""

    _wake = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._waiting: list[tuple[Sink, float, Any]] = []
        self._closed = False
        self._delivered = 0.0
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._drain)
        self._wake.connect(self._awake, Qt.ConnectionType.QueuedConnection)

    def receiver(self, sink: Sink) -> Callable[[Any], None]:
        """A function for any thread that hands each of its arguments to `sink`."""
        return lambda value: self.post(sink, value)

    def post(self, sink: Sink, value: object) -> None:
        """Any thread: queue `value`; dropped once the bridge is closed."""
        with self._lock:
            if self._closed:
                return
            first = not self._waiting
            self._waiting.append((sink, time.monotonic(), value))
        if first:
            self._wake.emit()

    def close(self) -> None:
        """Deliver what is waiting, then nothing any more."""
        with self._lock:
            self._closed = True
        self._timer.stop()
        self._drain()

    def _awake(self) -> None:
        due = self._delivered + FRAME_S - time.monotonic()
        if due > 0:
            self._timer.start(math.ceil(1e3 * due))
        else:
            self._drain()

    def _drain(self) -> None:
        self._delivered = time.monotonic()
        with self._lock:
            waiting, self._waiting = self._waiting, []
        # Bound methods of one object are equal, so its events stay together.
        batches: dict[Sink, list[Stamped]] = {}
        for sink, moment, value in waiting:
            batches.setdefault(sink, []).append((moment, value))
        failure: BaseException | None = None
        for sink, batch in batches.items():
            try:
                sink(batch)
            except Exception as error:
                # One sink's bug must not cost another its events.
                failure = failure or error
        if failure is not None:
            raise failure
