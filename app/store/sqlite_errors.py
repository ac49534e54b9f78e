"""SQLite's errors in the user's terms; what is none of the user's business stays what it is."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.store.errors import BusyError, DamagedError, StoreError

_SHARED_MEMORY = 32 << 10
"""Bytes of the smallest index that SQLite keeps beside its log."""


@contextmanager
def translated(path: Path | None) -> Generator[None]:
    """Turns those of SQLite's errors that come from outside into StoreErrors; programming errors stay what they are."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        known = _explain(error, path)
        if known is None:
            raise
        raise known from error


def code_of(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 for errors that the Python module raises by itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def unusable(path: Path | None, why: str) -> StoreError:
    """The error of a file that can be neither opened nor put aside."""
    return StoreError(
        f"The chat history {path} cannot be used ({why}).", "Check that its disk is there and that you may write to it."
    )


def _explain(error: sqlite3.DatabaseError, path: Path | None) -> StoreError | None:
    code = code_of(error)
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return BusyError(
            "The chat history is in use by another program, so nothing was saved.",
            "Close the other program (a second Inkstand, a backup or sync tool), then try again.",
        )
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return DamagedError(
            f"The chat history {path} is damaged ({error}).",
            "Start Inkstand again: it keeps the damaged file and starts a new one.",
        )
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(path)):
        return StoreError(
            "The disk is full, so the last change to the chat history was not saved.", "Make room, then try again."
        )
    if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}:
        return StoreError(
            f"The chat history {path} cannot be written ({error}), so nothing was saved.",
            "Make the file and its folder writable, then try again.",
        )
    if code in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}:
        return unusable(path, str(error))
    return None


def _is_full(path: Path | None) -> bool:
    """SQLite says "I/O error" where there is no room for its shared memory."""
    with suppress(OSError):
        return path is not None and shutil.disk_usage(path.parent).free < _SHARED_MEMORY
    return False
