"""Chats: the list, their names and settings, copies, deletion with undo."""

from __future__ import annotations

import sqlite3

from app.store.db import Database
from app.store.records import Chat, CutOff, Json, dump, storable
from app.store.rows import CHAT_COLUMNS, fetch_chat, insert_chat, missing, read_chat
from app.store.titles import copy_title, derive_title, one_line


class Chats:
    """Every method is one transaction and raises StoreError when the history cannot be used."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def list(self) -> list[Chat]:
        """All chats that are not deleted: pinned first, then the newest update first."""
        with self._db.read() as connection:
            rows = connection.execute(
                f"SELECT {CHAT_COLUMNS} FROM chats c WHERE deleted_at IS NULL "
                "ORDER BY pinned DESC, updated_at DESC, id DESC"
            ).fetchall()
        return [read_chat(row) for row in rows]

    def get(self, chat_id: int) -> Chat:
        """Raises MissingError for a chat that is deleted."""
        with self._db.read() as connection:
            return fetch_chat(connection, chat_id)

    def create(self, *, title: str = "", system_prompt: str = "", settings: Json | None = None) -> Chat:
        """A chat without messages. Without a title it is named after its first message."""
        with self._db.write() as connection:
            now = self._db.clock()
            chat_id = insert_chat(connection, Chat(0, title, False, now, now, system_prompt, settings or {}))
            return fetch_chat(connection, chat_id)

    def rename(self, chat_id: int, title: str) -> Chat:
        """An empty title derives the name from the first message again."""
        with self._db.write() as connection:
            clean = one_line(storable(title)) or _derived(connection, chat_id)
            _update(connection, chat_id, "title", clean)
            return fetch_chat(connection, chat_id)

    def set_pinned(self, chat_id: int, pinned: bool) -> None:
        with self._db.write() as connection:
            _update(connection, chat_id, "pinned", pinned)

    def set_system_prompt(self, chat_id: int, text: str) -> None:
        with self._db.write() as connection:
            _update(connection, chat_id, "system_prompt", storable(text))

    def set_settings(self, chat_id: int, settings: Json) -> None:
        """Replaces the chat's overrides of the settings."""
        with self._db.write() as connection:
            _update(connection, chat_id, "settings", dump(settings))

    def duplicate(self, chat_id: int) -> Chat:
        """A copy with every branch. An answer that is being written is copied as far as it is, as stopped."""
        with self._db.write() as connection:
            original = fetch_chat(connection, chat_id)
            titles = {title for (title,) in connection.execute("SELECT title FROM chats WHERE deleted_at IS NULL")}
            title = copy_title(original.title, titles) if original.title else ""
            now = self._db.clock()
            copy_id = insert_chat(
                connection, Chat(0, title, False, now, now, original.system_prompt, original.settings)
            )
            _copy_messages(connection, chat_id, copy_id)
            return fetch_chat(connection, copy_id)

    def delete(self, chat_id: int) -> None:
        """Takes the chat out of the list and out of searches until it is purged or the deletion undone."""
        with self._db.write() as connection:
            fetch_chat(connection, chat_id)
            _update(connection, chat_id, "deleted_at", self._db.clock())

    def undo_delete(self, chat_id: int) -> Chat:
        """Brings the chat back as it was. Raises MissingError when it was purged."""
        with self._db.write() as connection:
            _update(connection, chat_id, "deleted_at", None)
            return fetch_chat(connection, chat_id)

    def purge_deleted(self, older_than_s: float) -> int:
        """Removes for good the chats that were deleted at least that long ago. Returns their number."""
        with self._db.write() as connection:
            limit = self._db.clock() - older_than_s
            ids = [i for (i,) in connection.execute("SELECT id FROM chats WHERE deleted_at <= ?", (limit,))]
            for chat_id in ids:
                connection.execute(
                    "DELETE FROM traces WHERE message_id IN (SELECT id FROM messages WHERE chat_id = ?)", (chat_id,)
                )
                connection.execute("DELETE FROM messages WHERE chat_id = ?", (chat_id,))
                connection.execute("DELETE FROM unsent WHERE chat_id = ?", (chat_id,))
                connection.execute("DELETE FROM chats WHERE id = ?", (chat_id,))
            if ids:
                # Until its segments are merged, a full-text index keeps the words of what was deleted.
                for index in ("message_index", "title_index"):
                    connection.execute(f"INSERT INTO {index} ({index}) VALUES ('optimize')")
        return len(ids)

    def unsent(self, chat_id: int | None) -> str:
        """What stands in the composer of a chat, or of the page before a chat's first message."""
        with self._db.read() as connection:
            row = connection.execute("SELECT content FROM unsent WHERE chat_id IS ?", (chat_id,)).fetchone()
        # After damage there may be anything.
        return row[0] if row is not None and isinstance(row[0], str) else ""

    def set_unsent(self, chat_id: int | None, text: str, *, in_sight: bool = False) -> None:
        """
        Args:
            in_sight: it is being typed. Stored so and not stored again when it is left, it was cut off.
        """
        with self._db.write() as connection:
            connection.execute("DELETE FROM unsent WHERE chat_id IS ?", (chat_id,))
            if not text:
                return
            if chat_id is not None:
                fetch_chat(connection, chat_id)
            if in_sight:
                connection.execute("UPDATE unsent SET in_sight = 0")
            connection.execute("INSERT INTO unsent VALUES (?, ?, ?)", (chat_id, storable(text), in_sight))

    def cut_off(self) -> CutOff | None:
        """Where text was being typed when the program ended without leaving it."""
        with self._db.read() as connection:
            row = connection.execute(
                "SELECT u.chat_id FROM unsent u LEFT JOIN chats c ON c.id = u.chat_id "
                "WHERE u.in_sight = 1 AND typeof(u.content) = 'text' AND c.deleted_at IS NULL"
            ).fetchone()
        return None if row is None else CutOff(row[0])


def _update(connection: sqlite3.Connection, chat_id: int, column: str, value: object) -> None:
    if not connection.execute(f"UPDATE chats SET {column} = ? WHERE id = ?", (value, chat_id)).rowcount:
        raise missing("chat")


def _derived(connection: sqlite3.Connection, chat_id: int) -> str:
    row = connection.execute(
        "SELECT content FROM messages WHERE chat_id = ? AND parent_id IS NULL AND role = 'user' ORDER BY id LIMIT 1",
        (chat_id,),
    ).fetchone()
    return "" if row is None else derive_title(row[0])


def _copy_messages(connection: sqlite3.Connection, source: int, target: int) -> None:
    columns = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info('messages')")]
    kept = [name for name in columns if name not in {"id", "chat_id", "parent_id", "state"}]
    copy = (
        f"INSERT INTO messages (chat_id, parent_id, state, {', '.join(kept)}) "
        f"SELECT ?, ?, CASE state WHEN 'streaming' THEN 'stopped' ELSE state END, {', '.join(kept)} "
        "FROM messages WHERE id = ?"
    )
    new_ids: dict[int | None, int | None] = {None: None}
    rows = connection.execute("SELECT id, parent_id FROM messages WHERE chat_id = ? ORDER BY id", (source,)).fetchall()
    for message_id, parent_id in rows:
        new_id = connection.execute(copy, (target, new_ids[parent_id], message_id)).lastrowid
        connection.execute(
            "INSERT INTO traces SELECT ?, token_ids, rounds FROM traces WHERE message_id = ?", (new_id, message_id)
        )
        new_ids[message_id] = new_id
