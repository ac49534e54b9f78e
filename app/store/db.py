"""The SQLite file: opening and migrating it, also where it is damaged or cannot be written; transactions."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import quote

from app.store import files
from app.store import migrations as schema
from app.store.errors import BusyError, DamagedError, ReadOnlyError, StoreError
from app.store.migrations import MIGRATIONS, Migration
from app.store.sqlite_errors import code_of, translated, unusable

_UPDATE = "Start the newest version of Inkstand to go on with these chats."
_MAKE_WRITABLE = "Make room on its disk, or make the file and its folder writable, then start Inkstand again."


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
        refused: str | None,
        notices: Sequence[str],
        clock: Callable[[], float],
    ) -> None:
        """
        Args:
            refused: where nothing can be written, what the user can do about it.
        """
        self.path = path
        self._refused = refused
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

        A file that is damaged, or no history at all, is renamed and a fresh one is opened. A file of a newer version,
        or one that cannot be written, is opened for reading only. Before a migration the file is copied.

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
            raise unusable(path, error.strerror or str(error)) from error

        def open_connections() -> tuple[sqlite3.Connection, sqlite3.Connection]:
            files.check_file(path)
            if (log := files.set_damaged_log_aside(path, clock())) is not None:
                notices.append(_log_notice(log))
            return _connect_checked(path, busy_timeout_s)

        try:
            writer, reader = open_connections()
        except DamagedError as damage:
            kept = files.set_aside(path, clock())
            notices.append(f"{damage.title} It was kept as {kept}, and a new chat history was started.")
            writer, reader = open_connections()
        except BusyError:
            raise
        except StoreError as trouble:
            connection = _connect_unwritable(path, trouble)
            writer, reader = connection, connection
        try:
            with translated(path):
                if writer is reader or not os.access(path, os.W_OK):
                    refused = _MAKE_WRITABLE
                    notices.append(
                        f"The chat history {path} cannot be written, so it is open for reading only. {refused}"
                    )
                    writer, reader = _brought_up_to_date(writer, reader, clock(), migrations)
                else:
                    refused = _prepare(writer, reader, path, notices, clock=clock, migrations=migrations)
        except BaseException:
            writer.close()
            reader.close()
            raise
        return cls(path, writer, reader, refused=refused, notices=notices, clock=clock)

    @classmethod
    def in_memory(cls, *, clock: Callable[[], float] = time.time, notices: Sequence[str] = ()) -> Database:
        """A history that lasts as long as the program, for when no file can be had."""
        connection = _connect(":memory:", 0.0)
        schema.migrate(connection, clock())
        return cls(None, connection, connection, refused=None, notices=notices, clock=clock)

    @contextmanager
    def read(self) -> Generator[sqlite3.Connection]:
        """A consistent view of the data. Not to be nested, nor to be used inside `write`."""
        try:
            with self._read_lock, translated(self.path), _transaction(self._reader, "DEFERRED"):
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
        if self._refused is not None:
            raise ReadOnlyError("The chat history is open for reading only, so nothing can be saved.", self._refused)
        with self._write_lock, translated(self.path):
            self._writer.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            with _transaction(self._writer, "IMMEDIATE"):
                yield self._writer

    @property
    def read_only(self) -> bool:
        """Whether every attempt to write raises ReadOnlyError."""
        return self._refused is not None

    def close(self) -> None:
        """Closes the file; waits for a transaction in progress. May be called twice."""
        with self._write_lock:
            self._writer.close()
        with self._read_lock:
            self._reader.close()


def _connect(target: Path | str, busy_timeout_s: float, *, uri: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(target, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False, uri=uri)
    # Bytes that are no text, after damage that SQLite does not see, cost a character and not the chat.
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _connect_checked(path: Path, busy_timeout_s: float) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """A writer and a reader of a file that is sound and ours. Raises DamagedError when it is not."""
    with translated(path):
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


def _connect_unwritable(path: Path, trouble: StoreError) -> sqlite3.Connection:
    """A connection to a file beside which SQLite cannot make its log: on a full disk, or in a folder that is read-only.

    Raises:
        StoreError: `trouble`, where the file cannot be read without a log either.
    """
    if files.log_length(path) or not path.exists():
        raise trouble
    with translated(path):
        connection = _connect(f"file:{quote(str(path.absolute()))}?immutable=1", 0.0, uri=True)
        try:
            _check(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def _brought_up_to_date(
    writer: sqlite3.Connection, reader: sqlite3.Connection, now: float, migrations: Sequence[Migration]
) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """The connections to a file that cannot be written; in their place one to an updated copy in memory, if need be."""
    if schema.pending(schema.applied(reader), migrations):
        copy = _connect(":memory:", 0.0)
        reader.backup(copy)
        with _transaction(copy, "IMMEDIATE"):
            schema.migrate(copy, now, migrations)
        writer.close()
        reader.close()
        writer = reader = copy
    writer.execute("PRAGMA query_only = ON")
    return writer, reader


def _check(connection: sqlite3.Connection, path: Path) -> None:
    try:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        tables = connection.execute("SELECT count(*) FROM sqlite_schema WHERE type = 'table'").fetchone()[0]
        steps = schema.applied(connection)
        schema.check_usable(connection)
    except sqlite3.OperationalError as error:
        # These statements are sound, so what SQLite calls an error in them is one of the file.
        if code_of(error) != sqlite3.SQLITE_ERROR:
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
) -> str | None:
    """WAL mode and migrations. Returns the cure where the file can only be read."""
    names = schema.applied(writer)
    if newer := schema.unknown(names, migrations):
        writer.execute("PRAGMA query_only = ON")
        notices.append(
            f"The chat history was written by a newer version of Inkstand (it needs {newer[-1]}). "
            f"It is open for reading only. {_UPDATE}"
        )
        return _UPDATE
    writer.execute("PRAGMA journal_mode = WAL").fetchone()
    if files.log_length(path):
        frames = -1
        with suppress(sqlite3.OperationalError):  # a full disk, which is told when something is to be saved
            (_, frames, _) = writer.execute("PRAGMA wal_checkpoint (PASSIVE)").fetchone()
        if frames >= 0 and files.lost_log(path, frames):
            notices.append(_log_notice(files.copy_log(path, clock())))
    if schema.pending(names, migrations):
        with _transaction(writer, "IMMEDIATE"):
            # Asked again under the lock: another instance may have been quicker.
            names = schema.applied(writer)
            if names and schema.pending(names, migrations):
                # Through the reader, which sees what was last committed; a connection cannot copy its own transaction.
                files.back_up(reader, path, clock(), names[-1])
            schema.migrate(writer, clock(), migrations)
    return None


def _log_notice(kept: Path) -> str:
    return (
        "The log of the newest changes to the chat history was damaged, so the last messages may be missing. "
        f"It was kept as {kept}."
    )


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
