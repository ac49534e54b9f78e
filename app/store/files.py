"""The files of a history beside what SQLite does with them: what stands there, setting it aside, backups."""

from __future__ import annotations

import glob
import sqlite3
import stat
import struct
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

from app.store.errors import DamagedError, StoreError
from app.store.sqlite_errors import unusable

_SIDECARS = ("", "-wal", "-shm")
_MAGIC = b"SQLite format 3\0"
_LOG_MAGIC = (0x377F0682, 0x377F0683)
_LOG_HEADER, _FRAME_HEADER = 32, 24
"""Bytes, as https://www.sqlite.org/fileformat2.html#the_write_ahead_log has them."""


def check_file(path: Path) -> None:
    """Looks at the file before SQLite does, which would delete the log of a database that it does not recognise.

    Raises:
        DamagedError: what stands there is no database.
        StoreError: it cannot be looked at.
    """
    try:
        # Reading a pipe would wait for somebody to write.
        if not stat.S_ISREG(path.stat().st_mode):
            raise DamagedError(f"{path} is no file, so it is no chat history.")
        with path.open("rb") as file:
            header = file.read(len(_MAGIC))
    except FileNotFoundError:
        header = b""
    except OSError as error:
        raise unusable(path, error.strerror or str(error)) from error
    if not header and log_length(path):
        raise DamagedError(f"The chat history {path} is damaged (it is empty, though its log is not).")
    if header not in (b"", _MAGIC):
        raise DamagedError(f"The chat history {path} is damaged (it is no database).")


def set_damaged_log_aside(path: Path, now: float) -> Path | None:
    """Renames the log beside the database where it is no log at all; SQLite would write over it without a word.

    Returns:
        its new name; None when nothing had to be done.
    """
    log = _log_of(path)
    try:
        with log.open("rb") as file:
            header = file.read(_LOG_HEADER)
    except OSError:
        return None
    # A power cut may leave zeros, or less than a header: then nothing was ever committed to it.
    if len(header) < _LOG_HEADER or not any(header) or int.from_bytes(header[:4], "big") in _LOG_MAGIC:
        return None
    return _log_of(set_aside(path, now, sidecars=_SIDECARS[1:]))


def lost_log(path: Path, frames: int) -> bool:
    """Whether the log holds a transaction that ended and that SQLite, for damage before it, does not see.

    Args:
        frames: how many frames of the log SQLite goes by.
    """
    try:
        with _log_of(path).open("rb") as file:
            header = file.read(_LOG_HEADER)
            if len(header) < _LOG_HEADER:
                return False
            (page,) = struct.unpack(">I", header[8:12])
            salts = header[16:24]
            file.seek(_LOG_HEADER + frames * (_FRAME_HEADER + page))
            while len(frame := file.read(_FRAME_HEADER)) == _FRAME_HEADER:
                # What an earlier round of the log left further back has other salts; zero pages is no end.
                if frame[8:16] == salts and any(frame[4:8]):
                    return True
                file.seek(page, 1)
    except OSError:
        pass
    return False


def copy_log(path: Path, now: float) -> Path:
    """Copies the log beside the database. Raises StoreError."""
    kept = _log_of(_free_name(path, "damaged", now))
    try:
        kept.write_bytes(_log_of(path).read_bytes())
    except OSError as error:
        raise unusable(path, error.strerror or str(error)) from error
    return kept


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def log_length(path: Path) -> int:
    """Bytes of the log beside the database; 0 without one."""
    try:
        return _log_of(path).stat().st_size
    except OSError:
        return 0


def back_up(connection: sqlite3.Connection, path: Path, now: float, last: str) -> Path:
    """Copies the database beside itself, under the name of the last step it has been through.

    Raises:
        StoreError: there is no room for the copy, or the folder cannot be written; the database was left as it was.
    """
    kept = _free_name(path, f"before-update-from-{last}", now)
    partial = kept.with_name(kept.name + ".part")
    try:
        # What a program left that was killed here, the journals of its copies included: SQLite would play one of them
        # into a new copy of that name. Only one program gets here at a time: it has the write lock.
        for old in path.parent.glob(f"{glob.escape(path.stem)}.before-update-from-*.part*"):
            with suppress(OSError):
                old.unlink()
        with closing(sqlite3.connect(partial)) as copy:
            connection.backup(copy)
        partial.replace(kept)
    except (sqlite3.Error, OSError) as error:
        with suppress(OSError):
            partial.unlink()
        raise StoreError(
            f"The chat history must be brought up to date, and no backup of it could be written to {kept} ({error}).",
            "Make room on that disk and start Inkstand again; the history was not touched.",
        ) from error
    return kept


def set_aside(path: Path, now: float, *, sidecars: tuple[str, ...] = _SIDECARS) -> Path:
    """Renames the file and what belongs to it. Raises StoreError when that fails."""
    kept = _free_name(path, "damaged", now)
    try:
        for suffix in sidecars:
            source = path.with_name(path.name + suffix)
            if source.exists():
                source.replace(kept.with_name(kept.name + suffix))
    except OSError as error:
        raise StoreError(
            f"The chat history {path} is damaged and could not be renamed ({error}).", "Move it away by hand."
        ) from error
    return kept


def _free_name(path: Path, what: str, now: float) -> Path:
    stamp = datetime.fromtimestamp(now).astimezone().strftime("%Y-%m-%d-%H%M%S")
    name = path.with_name(f"{path.stem}.{what}.{stamp}{path.suffix}")
    count = 1
    while any(name.with_name(name.name + suffix).exists() for suffix in _SIDECARS):
        count += 1
        name = path.with_name(f"{path.stem}.{what}.{stamp}-{count}{path.suffix}")
    return name
