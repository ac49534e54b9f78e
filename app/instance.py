"""One window per data folder: who starts the program again gets the window that is there.

Two of them would write one history, and each would take the other's answers for what a crash left behind. The lock is
one of the system's, see `engine.locks`: no stale one is ever in the way. The locked file says who has it and where it
listens.
"""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import UserError
from engine.locks import FileLock, HeldError, Holder
from engine.paths import HOME

if TYPE_CHECKING:
    from PySide6.QtCore import QSocketNotifier

LOCK = "inkstand.lock"
_REPLY = b"shown"
_ANSWER_S = 5.0
"""Seconds that the other window has to answer."""
_LEAVE_S = 10.0
"""Seconds that a program which is quitting has to be gone."""
_POLL_S = 0.05


class Instance:
    """This process, as the one that works on a data folder; made by `claim`."""

    def __init__(self, lock: FileLock | None, listener: socket.socket | None) -> None:
        self._lock = lock
        self._listener = listener
        self._notifier: QSocketNotifier | None = None

    def listen(self, show: Callable[[], object]) -> None:
        """Call `show` in Qt's event loop whenever the program is started again. Needs the Qt application."""
        from PySide6.QtCore import QSocketNotifier  # noqa: PLC0415 (a second start does without Qt)

        listener = self._listener
        if listener is None:
            return

        def asked() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    show()
                    connection.send(_REPLY)

        self._notifier = QSocketNotifier(listener.fileno(), QSocketNotifier.Type.Read)
        self._notifier.activated.connect(asked)

    def stop_listening(self) -> None:
        """Whoever starts the program from now on waits for the end of this one. May be called twice."""
        if self._notifier is not None:
            self._notifier.setEnabled(False)
            self._notifier = None
        if self._listener is not None:
            with suppress(OSError):
                Path(self._listener.getsockname()).unlink()
            self._listener.close()
            self._listener = None

    def close(self) -> None:
        """Let another process have the folder. May be called twice."""
        self.stop_listening()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def claim(folder: Path, *, answer_s: float = _ANSWER_S, leave_s: float = _LEAVE_S) -> Instance | None:
    """Make this process the only one on a data folder; where another one is, have it show its window.

    Returns:
        None when another window was shown instead. An `Instance` without a lock where the folder cannot be written or
        its file system has no locks: the program starts all the same.

    Raises:
        UserError: another process has the folder and does not answer.
    """
    deadline = time.monotonic() + leave_s
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(folder / LOCK).acquire()
        except OSError:
            return Instance(None, None)
        except HeldError as error:
            holder = error.holder
        else:
            return _take(folder, lock) if lock.held else Instance(None, None)
        answered = _ask(holder.address, answer_s)
        if answered:
            return None
        if answered is None or time.monotonic() >= deadline:
            raise _unanswered(folder, holder)
        time.sleep(_POLL_S)


def _take(folder: Path, lock: FileLock) -> Instance:
    listener, address = None, _address(folder)
    if address is not None:
        listener = socket.socket(socket.AF_UNIX)
        try:
            address.unlink(missing_ok=True)  # of a process that was killed: the lock is ours
            listener.bind(str(address))
            listener.listen()
            listener.setblocking(False)
        except OSError:
            listener.close()
            listener, address = None, None
    lock.describe(str(address or ""))
    return Instance(lock, listener)


def _address(folder: Path) -> Path | None:
    """A place for the socket, whose path must be short, unlike those of data folders. None where there is none."""
    try:
        base = Path(tempfile.gettempdir()) / f"inkstand-{os.getuid()}"
        base.mkdir(mode=0o700, exist_ok=True)
        found = base.lstat()
    except OSError:
        return None
    # Anybody may make folders there; one of somebody else is not used.
    if found.st_uid != os.getuid() or found.st_mode & 0o170077 != 0o040000:
        return None
    return base / hashlib.sha256(str(folder.resolve()).encode(errors="surrogateescape")).hexdigest()[:16]


def _ask(address: str, answer_s: float) -> bool | None:
    """True once the window at `address` was shown; None when something listens and does not answer; else False."""
    if not address:
        return False
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(answer_s)
        try:
            connection.connect(address)
        except OSError:
            return False
        try:
            return connection.recv(len(_REPLY)) == _REPLY
        except TimeoutError:
            return None
        except OSError:
            return False


def _unanswered(folder: Path, holder: Holder) -> UserError:
    who = f" ({holder.name})" if holder.pid else ""
    return UserError(
        f"Inkstand is already running with {folder}{who}, and its window does not answer.",
        f"Use that window, or end the process; or set {HOME} to another folder for a second Inkstand.",
    )
