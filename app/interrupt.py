"""Ctrl-C in the terminal that opened the window: the first one quits as the menu does, the second one at once."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from PySide6.QtCore import QSocketNotifier

INTERRUPTED = 130


@contextmanager
def quit_on_interrupt(leave: Callable[[], None]) -> Generator[None]:
    """Calls `leave` from Qt's event loop once SIGINT came; nothing where the process was told to ignore it.

    Without this, Python would see the signal in whatever slot runs next, and the exception would end only that. While
    the loop sleeps no slot runs at all; so the signal writes to a socket that Qt watches.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    came = False

    def on_interrupt(_signum: int, _frame: FrameType | None) -> None:
        nonlocal came
        if came:
            os._exit(INTERRUPTED)
        came = True

    def woken() -> None:
        if signal.SIGINT in reader.recv(4096):
            leave()

    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)
        writer.setblocking(False)
        notifier = QSocketNotifier(reader.fileno(), QSocketNotifier.Type.Read)
        notifier.activated.connect(woken)
        previous = signal.signal(signal.SIGINT, on_interrupt)
        wakeup = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            signal.signal(signal.SIGINT, previous)
            notifier.setEnabled(False)
