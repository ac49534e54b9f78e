"""Ctrl-C while an answer is made: the first one asks for its end, the second one insists."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def cancel_on_interrupt() -> Generator[threading.Event]:
    """An event that the first SIGINT sets, instead of an exception in the middle of a forward.

    The second SIGINT raises KeyboardInterrupt as usual. Outside the main thread, which alone receives signals, the
    event is never set.
    """
    cancel = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield cancel
        return

    def on_interrupt(signum: int, frame: FrameType | None) -> None:
        if cancel.is_set():
            signal.default_int_handler(signum, frame)
        cancel.set()

    previous = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield cancel
    finally:
        signal.signal(signal.SIGINT, previous)
