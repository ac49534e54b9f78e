"""The SQLite file: opening, migrating, setting a damaged one aside, transactions, and errors in the user's terms."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path

from app.store import migrations as schema
from app.store.errors import BusyError, DamagedError, ReadOnlyError, StoreError
from app.store.migrations import MIGRATIONS, Migration

_SIDECARS = ("", "-wal", "-shm")
_MAGIC = b"SQLite format 3\0"


class Database:
    """One history file, usable from any thread.

    Writes go through one connection and reads through another, each behind its own lock. In WAL mode a reader never
    waits for a writer, so the transcript can be read while a write waits for another program.

    `notices` are sentences for the user about what happened while opening.
    """

    def __init__(
        self,
        path: Path | None,
        writer: sqlite3.Connection,
        reader: sqlite3.Connection,
        *,
        read_only: bool,
        notices: Sequence[str],
        clock: Callable[[], float],
    ) -> None:
        self.path = path
        self.read_only = read_only
        self.notices = tuple(notices)
        self.clock = clock
        self._writer = writer
        self._reader = reader
        self._write_lock = threading.Lock()
        self._read_lock = self._write_lock if writer is reader else threading.Lock()

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        busy_timeout_s: float = 3.0,
        clock: Callable[[], float] = time.time,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> Database:
        """Opens or creates the file and brings its schema up to date.

        A file that is damaged, or no history at all, is renamed and a fresh one is opened. A file of a newer version
        is opened for reading only. Before a migration the file is copied.

        Args:
            busy_timeout_s: how long a write waits for another program's write lock.

        Raises:
            BusyError: the schema must be brought up to date and another program holds the lock.
            StoreError: the file or its folder cannot be used.
        """
        notices: list[str] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unusable(path, str(error)) from error
        try:
            connections = _connect_checked(path, busy_timeout_s)
        except DamagedError as damage:
            kept = _set_aside(path, clock())
            notices.append(f"{damage.title} It was kept as {kept}, and a new chat history was started.")
            connections = _connect_checked(path, busy_timeout_s)
        writer, reader = connections
        try:
            with _translated(path):
                read_only = _prepare(writer, reader, path, notices, clock=clock, migrations=migrations)
        except BaseException:
            writer.close()
            reader.close()
            raise
        return cls(path, writer, reader, read_only=read_only, notices=notices, clock=clock)

    @classmethod
    def in_memory(cls, *, clock: Callable[[], float] = time.time, notices: Sequence[str] = ()) -> Database:
        """A history that lasts as long as the program, for when no file can be had."""
        connection = _connect(":memory:", 0.0)
        schema.migrate(connection, clock())
        return cls(None, connection, connection, read_only=False, notices=notices, clock=clock)

    @contextmanager
    def read(self) -> Generator[sqlite3.Connection]:
        """A consistent view of the data. Not to be nested, nor to be used inside `write`."""
        try:
            with self._read_lock, _translated(self.path), _transaction(self._reader, "DEFERRED"):
                yield self._reader
        except sqlite3.OperationalError as error:
            if not self.read_only:
                raise
            raise StoreError(
                f"This version of Inkstand cannot read the chat history of a newer one ({error}).", "Update Inkstand."
            ) from error

    @contextmanager
    def write(self, *, durable: bool = False) -> Generator[sqlite3.Connection]:
        """A transaction: all of it is stored, or none.

        Args:
            durable: also survive a power failure. A crash of the program alone loses nothing either way.

        Raises:
            ReadOnlyError: nothing can be written to this history.
            BusyError: the write lock was not to be had in time.
            StoreError: the disk is full, or failed.
        """
        if self.read_only:
            raise ReadOnlyError(
                "The chat history is open for reading only, so nothing can be saved.",
                "Start the newest version of Inkstand, or make the file writable.",
            )
        with self._write_lock, _translated(self.path):
            self._writer.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            with _transaction(self._writer, "IMMEDIATE"):
                yield self._writer

    def close(self) -> None:
        """Closes the file; waits for a transaction in progress. May be called twice."""
        with self._write_lock:
            self._writer.close()
        with self._read_lock:
            self._reader.close()


def _connect(target: Path | str, busy_timeout_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(target, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False)
    # Bytes that are no text, after damage that SQLite does not see, cost a character and not the chat.
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _connect_checked(path: Path, busy_timeout_s: float) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """A writer and a reader of a file that is sound and ours. Raises DamagedError when it is not."""
    _check_header(path)
    with _translated(path):
        writer = _connect(path, busy_timeout_s)
        try:
            _check(writer, path)
            # A purged chat must not stay legible in the free pages of the file.
            writer.execute("PRAGMA secure_delete = ON")
            reader = _connect(path, busy_timeout_s)
        except BaseException:
            writer.close()
            raise
    return writer, reader


def _check_header(path: Path) -> None:
    """Looks at the file before SQLite does, which would delete the log of a database that it does not recognise."""
    try:
        with path.open("rb") as file:
            header = file.read(len(_MAGIC))
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unusable(path, str(error)) from error
    if header not in (b"", _MAGIC):
        raise DamagedError(f"The chat history {path} is damaged (it is no database).")


def _check(connection: sqlite3.Connection, path: Path) -> None:
    try:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        tables = connection.execute("SELECT count(*) FROM sqlite_schema WHERE type = 'table'").fetchone()[0]
        steps = schema.applied(connection)
    except sqlite3.OperationalError as error:
        # These statements are sound, so what SQLite calls an error in them is one of the file.
        if _code(error) != sqlite3.SQLITE_ERROR:
            raise
        raise DamagedError(f"The chat history {path} is damaged ({error}).") from error
    except UnicodeDecodeError as error:  # in what SQLite says about the damage
        raise DamagedError(f"The chat history {path} is damaged.") from error
    if verdict != "ok":
        raise DamagedError(f"The chat history {path} is damaged ({verdict}).")
    if tables and not steps:
        raise DamagedError(f"{path} is a database, but not a chat history of Inkstand's.")


def _prepare(
    writer: sqlite3.Connection,
    reader: sqlite3.Connection,
    path: Path,
    notices: list[str],
    *,
    clock: Callable[[], float],
    migrations: Sequence[Migration],
) -> bool:
    """WAL mode and migrations. Returns whether the file can only be read."""
    names = schema.applied(writer)
    if newer := schema.unknown(names, migrations):
        writer.execute("PRAGMA query_only = ON")
        notices.append(
            f"The chat history was written by a newer version of Inkstand (it needs {newer[-1]}). "
            "It is open for reading only; update Inkstand to go on with these chats."
        )
        return True
    writer.execute("PRAGMA journal_mode = WAL")
    if schema.pending(names, migrations):
        with _transaction(writer, "IMMEDIATE"):
            # Asked again under the lock: another instance may have been quicker.
            names = schema.applied(writer)
            if names and schema.pending(names, migrations):
                # Through the reader, which sees what was last committed; a connection cannot copy its own transaction.
                _back_up(reader, path, clock(), names[-1])
            schema.migrate(writer, clock(), migrations)
    return False


def _back_up(connection: sqlite3.Connection, path: Path, now: float, last: str) -> Path:
    """Copies the database beside itself, under the name of the last step it has been through.

    Raises:
        StoreError: there is no room for the copy, or the folder cannot be written; the database was left as it was.
    """
    kept = _free_name(path, f"before-update-from-{last}", now)
    partial = kept.with_name(kept.name + ".part")
    try:
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


def _set_aside(path: Path, now: float) -> Path:
    """Renames the file and what belongs to it. Raises StoreError when that fails."""
    kept = _free_name(path, "damaged", now)
    try:
        for suffix in _SIDECARS:
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
    while name.exists():
        count += 1
        name = path.with_name(f"{path.stem}.{what}.{stamp}-{count}{path.suffix}")
    return name


@contextmanager
def _transaction(connection: sqlite3.Connection, kind: str) -> Generator[None]:
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # After some errors (a full disk) SQLite has already rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _translated(path: Path | None) -> Generator[None]:
    """Turns those of SQLite's errors that come from outside into StoreErrors; programming errors stay what they are."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        known = _explain(error, path)
        if known is None:
            raise
        raise known from error


def _explain(error: sqlite3.DatabaseError, path: Path | None) -> StoreError | None:
    code = _code(error)
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
    if code == sqlite3.SQLITE_FULL:
        return StoreError(
            "The disk is full, so the last change to the chat history was not saved.", "Make room, then try again."
        )
    if code in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}:
        return _unusable(path, str(error))
    return None


def _unusable(path: Path | None, why: str) -> StoreError:
    return StoreError(
        f"The chat history {path} cannot be used ({why}).", "Check that its disk is there and that you may write to it."
    )


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 for errors that the Python module raises by itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
