"""The only crossing from worker threads to the window: append to a list, wake once, swap the list on arrival."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal

Stamped = tuple[float, Any]
"""When it was posted (`time.monotonic`) and what."""
Sink = Callable[[Sequence[Stamped]], None]


class Bridge(QObject):
    """Delivers to the thread it was made in. However many events come between two turns of the event loop, each
    sink is called once with all of them, in order."""

    _wake = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._waiting: list[tuple[Sink, float, Any]] = []
        self._closed = False
        self._wake.connect(self._drain, Qt.ConnectionType.QueuedConnection)

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
        self._drain()

    def _drain(self) -> None:
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
