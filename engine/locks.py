"""Locks between processes, on files: the system's own, which end with their process, however that ends.

`flock` and not the record locks of POSIX, which a process loses when it closes any descriptor of the file; it is the
same on Linux and macOS. What stands in the file only says who has the lock; whether it is locked, the system knows.
"""

from __future__ import annotations

import errno
import fcntl
import getpass
import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_HELD = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF})
"""Some network file systems cannot lock."""
_UNWRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has a lock, as written by itself; everything is empty where it could not write."""

    pid: int = 0
    host: str = ""
    user: str = ""
    address: str = ""
    """Path of the socket it listens on, if it does."""

    @property
    def name(self) -> str:
        """For messages: "process 4711 of ada on desk"."""
        return f"process {self.pid} of {self.user} on {self.host}" if self.pid else "another process"


class HeldError(Exception):
    """Another descriptor, mostly of another process, has the lock."""

    def __init__(self, path: Path, holder: Holder) -> None:
        super().__init__(f"{path} is locked by {holder.name}")
        self.holder = holder


class FileLock:
    """The lock on one file, which is made where it is not there. A context manager that releases it.

    Two of them on the same file exclude each other within a process, too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._taken = False
        """True between `acquire` and `release`, also where nothing could be locked."""

    def acquire(self, *, wait_s: float = 0.0) -> Self:
        """Take the lock; where the file system has none, do without.

        Args:
            wait_s: seconds to wait for another holder.

        Raises:
            HeldError: it was not to be had in time.
            OSError: the file cannot be made, nor opened where it is there.
        """
        deadline = time.monotonic() + wait_s
        while True:
            file = _open(self.path)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = _read(file)
                os.close(file)
                if error.errno in _NO_LOCKS:
                    self._taken = True
                    return self
                if error.errno not in _HELD:
                    raise
                if time.monotonic() >= deadline:
                    raise HeldError(self.path, holder) from error
                time.sleep(_POLL_S)
                continue
            if _is_at(file, self.path) and (_writable(file) or not _removed(self.path)):
                self._file, self._taken = file, True
                self.describe()
                return self
            # Locked is what nobody else will find: whoever had it removed the file meanwhile, or it was another
            # user's, who has gone, and is replaced by one that can say who has the lock now.
            os.close(file)

    @property
    def held(self) -> bool:
        """False before `acquire` and after `release`, and where the file system has no locks."""
        return self._file is not None

    def describe(self, address: str = "") -> None:
        """Write into the file who has the lock, and on which socket it listens."""
        if self._file is None:
            return
        holder = Holder(os.getpid(), socket.gethostname(), _user(), address)
        # On a full disk the lock holds all the same; it only does not tell whose it is.
        with suppress(OSError):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, json.dumps(asdict(holder)).encode(), 0)

    def release(self, *, remove: bool = False) -> None:
        """Let others have the lock. May be called twice.

        Args:
            remove: leave no file behind.
        """
        file, self._file = self._file, None
        taken, self._taken = self._taken, False
        if taken and remove:
            with suppress(OSError):
                self.path.unlink()
        if file is not None:
            os.close(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno not in _UNWRITABLE or not path.exists():
            raise
        # Another user's: it cannot be written, but that it is locked can be seen.
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _writable(file: int) -> bool:
    return fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR


def _removed(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False


def _read(file: int) -> Holder:
    try:
        raw = json.loads(os.pread(file, 4096, 0))
        holder = Holder(int(raw["pid"]), str(raw["host"]), str(raw["user"]), str(raw["address"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return Holder()
    return Holder() if _has_ended(holder) else holder


def _has_ended(holder: Holder) -> bool:
    """Whether what stands in the file is left from an earlier holder: the one there is could not write into it."""
    if holder.host != socket.gethostname():
        return False  # another machine's processes cannot be asked for
    try:
        os.kill(holder.pid, 0)  # signal 0 only asks
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:  # another user's
        pass
    return holder.pid <= 0


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())
