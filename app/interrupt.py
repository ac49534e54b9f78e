"""Ctrl-C, the end of the session, `kill`: the first signal quits as the menu does, the second one at once."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from PySide6.QtCore import QSocketNotifier

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DEFAULTS = (signal.default_int_handler, signal.SIG_DFL)


@contextmanager
def quit_on_interrupt(leave: Callable[[], None]) -> Generator[None]:
    """Calls `leave` from Qt's event loop once SIGINT, SIGTERM or SIGHUP came; but for those that the process was told
    to ignore.

    Without this, Python would see a signal in whatever slot runs next, and the exception would end only that, or the
    process would end with what was typed and not sent. While the loop sleeps no slot runs at all; so the signal writes
    to a socket that Qt watches.
    """
    ours = [number for number in _SIGNALS if signal.getsignal(number) in _DEFAULTS]
    if not ours:
        yield
        return
    came = False

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal came
        if came:
            os._exit(128 + number)
        came = True

    def woken() -> None:
        if any(number in ours for number in reader.recv(4096)):
            leave()

    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)
        writer.setblocking(False)
        notifier = QSocketNotifier(reader.fileno(), QSocketNotifier.Type.Read)
        notifier.activated.connect(woken)
        previous = [signal.signal(number, on_signal) for number in ours]
        wakeup = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in zip(ours, previous, strict=True):
                signal.signal(number, handler)
            notifier.setEnabled(False)
