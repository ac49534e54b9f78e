"""Ctrl-C while an answer is made: the first one asks for its end, the second one insists."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Set by the first SIGINT; a `CancelFlag`.

    No `threading.Event`, whose `set` takes a lock: a signal handler runs between any two instructions of the main
    thread. Where those hold the lock already (in `wait`, or in the `set` of a SIGINT a moment before), the handler
    would wait for itself and never return.
    """

    def __init__(self) -> None:
        self._came = False

    def is_set(self) -> bool:
        return self._came

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if self._came:
            signal.default_int_handler(signum, frame)
        self._came = True


@contextmanager
def cancel_on_interrupt() -> Generator[Interrupt]:
    """A flag that the first SIGINT sets, instead of an exception in the middle of a forward.

    The second SIGINT raises KeyboardInterrupt as usual. Outside the main thread, which alone receives signals, the
    flag is never set.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    previous = signal.signal(signal.SIGINT, interrupt.handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, previous)
