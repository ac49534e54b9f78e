"""`.part` files: positioned writes, the checksum behind the frontier, and the atomic rename."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from engine.hub.errors import DiskFullError, HubError, TargetError, UnavailableError
from engine.hub.names import PART_SUFFIX, place
from engine.paths import sync

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_GONE = frozenset({errno.EIO, errno.ENXIO, errno.ENODEV, errno.ESTALE, errno.ENOENT, errno.ENOTCONN})
_READ = 1 << 20
_ELSEWHERE = "Check its path and permissions, or choose another folder."
_data_sync = getattr(os, "fdatasync", os.fsync)


class Disk:
    """The system calls that can run out of space; tests replace them."""

    def write(self, fd: int, data: bytes | bytearray, offset: int) -> None:
        """Writes all of `data`. Raises OSError."""
        view = memoryview(data)
        while view:
            written = os.pwrite(fd, view, offset)
            view, offset = view[written:], offset + written

    def sync(self, fd: int) -> None:
        """Returns once what was written survives a power cut."""
        _data_sync(fd)

    def free(self, folder: Path) -> int:
        """Bytes free for this user on the volume of `folder`, which need not exist yet.

        Raises:
            UnavailableError: not even a parent of it exists.
        """
        for there in (folder, *folder.parents):
            if there.is_dir():
                return shutil.disk_usage(there).free
        raise UnavailableError(f"The volume of {folder} is not there.", "Connect it, or choose another folder.")


def disk_error(error: OSError, path: Path) -> HubError:
    """What a failed system call on `path` means."""
    if error.errno in _FULL:
        return DiskFullError(
            f"The volume of {path.parent} is full.",
            "Everything fetched is kept. Free some space, then start the same download again: it continues.",
        )
    if error.errno in _GONE:
        return UnavailableError(
            f"{path.parent} cannot be written any more: {error.strerror}.",
            "Connect its volume again, then start the same download again: it continues.",
        )
    return TargetError(f"{path} cannot be written: {error.strerror}.", "Check the folder's permissions.")


@contextmanager
def disk_errors(path: Path) -> Generator[None]:
    """Turns what the system says about files into a HubError about `path`."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, path) from error


def check_writable(folder: Path) -> None:
    """Raises TargetError when `folder`, which need not exist yet, cannot be made or written to."""
    there = next(p for p in (folder, *folder.parents) if os.path.lexists(p))
    if not there.is_dir():
        what = "it" if there == folder else str(there)
        fault = "is a file" if there.exists() else "is a link to nothing"
        raise TargetError(f"The folder {folder} cannot be written: {what} {fault}.", _ELSEWHERE)
    if not os.access(there, os.W_OK | os.X_OK):
        raise TargetError(f"The folder {folder} cannot be written: {there} may not be changed.", _ELSEWHERE)


def make_folder(folder: Path) -> None:
    """Makes `folder` and its parents, where they are not there.

    Raises:
        TargetError, DiskFullError: it cannot be made, or not be written to.
    """
    check_writable(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # What root may do, and anybody on a read-only volume, permissions do not tell.
        tempfile.TemporaryDirectory(dir=folder).cleanup()
    except OSError as error:
        if error.errno in _FULL:
            raise disk_error(error, folder) from error
        raise TargetError(f"The folder {folder} cannot be written: {error.strerror}.", _ELSEWHERE) from error


def in_the_way(path: Path) -> TargetError:
    """The error for a file of the user's where another one has to go."""
    return TargetError(
        f"{path} is another file than the repository's, and Inkstand did not put it there.",
        "Move it away, leave it out with --exclude, or choose another folder with --to.",
    )


class PartFile:
    """The unfinished file of `name` below `root`. Its methods block; writes may come from several threads.

    Raises:
        UnsafeNameError: the name, or a link below `root`.
        TargetError, UnavailableError, DiskFullError: it cannot be created.
    """

    def __init__(self, root: Path, name: str, disk: Disk) -> None:
        self.final = place(root, name)
        self.path = self.final.with_name(self.final.name + PART_SUFFIX)
        self._disk = disk
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, flags, 0o644)
        except OSError as error:
            raise disk_error(error, self.path) from error

    @property
    def length(self) -> int:
        """Bytes up to the last one written."""
        return os.fstat(self._fd).st_size

    def write(self, data: bytes | bytearray, offset: int) -> None:
        """Raises DiskFullError, UnavailableError, TargetError."""
        try:
            self._disk.write(self._fd, data, offset)
        except OSError as error:
            raise disk_error(error, self.path) from error

    def sync(self) -> None:
        """Raises DiskFullError, UnavailableError, TargetError."""
        try:
            self._disk.sync(self._fd)
        except OSError as error:
            raise disk_error(error, self.path) from error

    def read_into(self, digest: Digest, stop: int) -> None:
        """Feeds the bytes from the digest's position to `stop`. Raises HubError when they cannot be read."""
        try:
            digest.read(self._fd, stop)
        except OSError as error:
            raise disk_error(error, self.path) from error

    def clear(self) -> None:
        """Forgets all content."""
        os.ftruncate(self._fd, 0)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def publish(self, *, keep_old: bool = False) -> os.stat_result:
        """Gives the file its name, atomically, once its bytes are on the disk. Returns its stat.

        Args:
            keep_old: set a file that stands there aside as NAME.changed instead of replacing it.
        """
        try:
            os.fsync(self._fd)
            stat = os.fstat(self._fd)
            self.close()
            if keep_old and self.final.exists():
                self.final.replace(self.final.with_name(self.final.name + ".changed"))
            self.path.replace(self.final)
            sync(self.final.parent)
        except OSError as error:
            raise disk_error(error, self.path) from error
        return stat

    def discard(self) -> None:
        """Removes the file."""
        self.close()
        self.path.unlink(missing_ok=True)


class Digest:
    """SHA-256 of a file, and the git blob id where that is all the hub tells, in file order.

    A git blob id is the SHA-1 of "blob <size>" and a zero byte before the content.
    """

    def __init__(self, size: int, *, git: bool) -> None:
        self.position = 0
        self._sha256 = hashlib.sha256()
        self._sha1 = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False) if git else None

    def read(self, fd: int, stop: int) -> None:
        """Feeds bytes from `position` to `stop` of an open file. Raises OSError also when it ends before."""
        while self.position < stop:
            piece = os.pread(fd, min(_READ, stop - self.position), self.position)
            if not piece:
                raise OSError(errno.EIO, "the file is shorter than what was written")
            self._sha256.update(piece)
            if self._sha1:
                self._sha1.update(piece)
            self.position += len(piece)

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    @property
    def git_oid(self) -> str | None:
        return self._sha1.hexdigest() if self._sha1 else None
