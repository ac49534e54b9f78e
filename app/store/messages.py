"""The messages of a chat: a tree in which one path is active.

Whatever is edited, generated again or tried again becomes a sibling; nothing is ever dropped. Each message knows
whether it is the active one among its siblings, so the active path is found by following the active child, and
switching away and back returns to the same leaf. A child's id is always greater than its parent's.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any, Literal, cast

from app.store.db import Database
from app.store.records import (
    Answer,
    Json,
    Message,
    Trace,
    dump,
    dump_tool_calls,
    load_tool_calls,
    storable,
    unpack_ids,
)
from app.store.rows import fetch_message, missing, read_path, read_trace, sound, store_trace
from app.store.titles import derive_title
from engine.messages import Message as ModelMessage
from engine.messages import Role

_LEAF = """
    WITH RECURSIVE path (id) AS (
        SELECT id FROM messages WHERE chat_id = ? AND parent_id IS NULL AND active = 1
        UNION ALL
        SELECT m.id FROM path JOIN messages m ON m.parent_id = path.id WHERE m.active = 1
    )
    SELECT max(id) FROM path
"""
_ANCESTRY = """
    WITH RECURSIVE line (id, parent_id) AS (
        SELECT id, parent_id FROM messages WHERE id = ?
        UNION ALL
        SELECT m.id, m.parent_id FROM line JOIN messages m ON m.id = line.parent_id
    )
"""


class Messages:
    """Every method is one transaction and raises StoreError when the history cannot be used."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def path(self, chat_id: int) -> list[Message]:
        """The active path from its first message to its leaf, each with its siblings."""
        with self._db.read() as connection:
            return read_path(connection, chat_id)

    def get(self, message_id: int) -> Message:
        with self._db.read() as connection:
            return fetch_message(connection, message_id)

    def trace(self, message_id: int) -> Trace:
        """Token ids and rounds of an answer; empty for other messages."""
        with self._db.read() as connection:
            row = connection.execute("SELECT token_ids, rounds FROM traces WHERE message_id = ?", (message_id,))
            return read_trace(row.fetchone())

    def context(self, message_id: int) -> list[ModelMessage]:
        """What the model is to see: the system prompt, then everything from the first message to this one.

        Answers that never got a token are left out.
        """
        with self._db.read() as connection:
            chat_id = _chat_of(connection, message_id)
            (prompt,) = connection.execute("SELECT system_prompt FROM chats WHERE id = ?", (chat_id,)).fetchone()
            rows = connection.execute(
                f"{_ANCESTRY} SELECT m.role, m.content, m.reasoning, m.tool_calls, t.token_ids, m.name, m.tool_call_id "
                "FROM line JOIN messages m ON m.id = line.id LEFT JOIN traces t ON t.message_id = m.id ORDER BY m.id",
                (message_id,),
            ).fetchall()
        turns = [ModelMessage("system", prompt)] if prompt else []
        turns.extend(_turn(row) for row in rows)
        return [turn for turn in turns if turn.role != "assistant" or _says_something(turn)]

    def siblings(self, message_id: int) -> tuple[int, ...]:
        """Ids of the messages with the same parent, oldest first, this one included."""
        return self.get(message_id).siblings

    def send(self, chat_id: int, content: str, *, role: Role = "user") -> Message:
        """Appends a message to the active path. When this returns it is on disk.

        A chat without a title is named after its first message.
        """
        with self._db.write(durable=True) as connection:
            row = connection.execute("SELECT title FROM chats WHERE id = ?", (chat_id,)).fetchone()
            if row is None:
                raise missing("chat")
            (leaf,) = connection.execute(_LEAF, (chat_id,)).fetchone()
            if not row[0]:
                connection.execute(
                    "UPDATE chats SET title = ? WHERE id = ?", (derive_title(storable(content)), chat_id)
                )
            # Left in the composer earlier and sent now: a crash must not bring it back there.
            connection.execute("DELETE FROM unsent WHERE chat_id = ?", (chat_id,))
            if leaf is None:
                connection.execute("DELETE FROM unsent WHERE chat_id IS NULL")
            return self._add(connection, chat_id, leaf, role, content)

    def edit(self, message_id: int, content: str) -> Message:
        """A new version beside a message, on the active path. What follows the old one stays there."""
        with self._db.write(durable=True) as connection:
            old = fetch_message(connection, message_id)
            return self._add(connection, old.chat_id, old.parent_id, old.role, content)

    def begin_answer(self, parent_id: int, *, model: str = "", options: Json | None = None) -> Message:
        """An empty answer to a message, on the active path; further answers to it stay as siblings.

        Args:
            model: what generates it.
            options: what it is generated with, as JSON.
        """
        with self._db.write() as connection:
            chat_id = _chat_of(connection, parent_id)
            return self._add(
                connection, chat_id, parent_id, "assistant", "", state="streaming", model=model, options=options
            )

    def save_answer(self, message_id: int, answer: Answer) -> None:
        """Stores how far an answer has come. A save that failed is made good by the next one."""
        with self._db.write() as connection:
            _store_answer(connection, message_id, answer, "streaming", None)

    def finish_answer(
        self,
        message_id: int,
        answer: Answer,
        *,
        state: Literal["done", "stopped", "failed"] = "done",
        error: str | None = None,
    ) -> Message:
        """Stores an answer that will not grow any more.

        Args:
            error: for a failed one, what to tell the user.
        """
        with self._db.write() as connection:
            _store_answer(connection, message_id, answer, state, error)
            message = fetch_message(connection, message_id)
            self._touch(connection, message.chat_id)
            return message

    def activate(self, message_id: int) -> list[Message]:
        """Makes the path that leads through this message the active one, and returns it.

        Below the message it goes on the way it last went.
        """
        with self._db.write() as connection:
            chat_id = _chat_of(connection, message_id)
            rows = connection.execute(
                f"{_ANCESTRY} SELECT m.id, m.parent_id FROM line JOIN messages m ON m.id = line.id WHERE m.active = 0",
                (message_id,),
            ).fetchall()
            for inactive, parent_id in rows:
                _deactivate_children(connection, chat_id, parent_id)
                connection.execute("UPDATE messages SET active = 1 WHERE id = ?", (inactive,))
            return read_path(connection, chat_id)

    def recover(self) -> int:
        """Marks answers that a program left in the middle as stopped. Returns their number.

        Should a second instance of the program be writing one, its next save puts the state right again.
        """
        with self._db.read() as connection:
            if connection.execute("SELECT 1 FROM messages WHERE state = 'streaming' LIMIT 1").fetchone() is None:
                return 0
        with self._db.write() as connection:
            return connection.execute(
                "UPDATE messages SET state = 'stopped', finish_reason = 'cancelled' WHERE state = 'streaming'"
            ).rowcount

    def _add(
        self,
        connection: sqlite3.Connection,
        chat_id: int,
        parent_id: int | None,
        role: Role,
        content: str,
        *,
        state: str = "done",
        model: str = "",
        options: Json | None = None,
    ) -> Message:
        _deactivate_children(connection, chat_id, parent_id)
        cursor = connection.execute(
            "INSERT INTO messages (chat_id, parent_id, active, role, state, content, created_at, model, options) "
            "VALUES (?, ?, 1, ?, ?, ?, ?, ?, ?)",
            (
                chat_id,
                parent_id,
                role,
                state,
                storable(content),
                self._db.clock(),
                storable(model),
                dump(options or {}),
            ),
        )
        self._touch(connection, chat_id)
        assert cursor.lastrowid is not None
        return fetch_message(connection, cursor.lastrowid)

    def _touch(self, connection: sqlite3.Connection, chat_id: int) -> None:
        connection.execute("UPDATE chats SET updated_at = ? WHERE id = ?", (self._db.clock(), chat_id))


def _chat_of(connection: sqlite3.Connection, message_id: int) -> int:
    row = connection.execute("SELECT chat_id FROM messages WHERE id = ?", (message_id,)).fetchone()
    if row is None:
        raise missing("message")
    return row[0]


def _deactivate_children(connection: sqlite3.Connection, chat_id: int, parent_id: int | None) -> None:
    connection.execute(
        "UPDATE messages SET active = 0 WHERE chat_id = ? AND parent_id IS ? AND active = 1", (chat_id, parent_id)
    )


def _store_answer(
    connection: sqlite3.Connection, message_id: int, answer: Answer, state: str, error: str | None
) -> None:
    changed = connection.execute(
        "UPDATE messages SET state = ?, error = ?, content = ?, reasoning = ?, tool_calls = ?, stats = ?, draft = ?, "
        "finish_reason = ?, reasoning_s = ?, reasoning_tokens = ? WHERE id = ?",
        (
            state,
            None if error is None else storable(error),
            storable(answer.content),
            storable(answer.reasoning),
            dump_tool_calls(answer.tool_calls),
            dump(answer.stats),
            dump(answer.draft),
            answer.finish_reason,
            answer.reasoning_s,
            answer.reasoning_tokens,
            message_id,
        ),
    ).rowcount
    if not changed:
        raise missing("message")
    store_trace(connection, message_id, Trace(answer.token_ids, answer.rounds))


@sound
def _turn(row: tuple[Any, ...]) -> ModelMessage:
    role, content, reasoning, tool_calls, token_ids, name, tool_call_id = row
    return ModelMessage(
        role=cast("Role", role),
        content=content,
        reasoning=reasoning or None,
        tool_calls=load_tool_calls(json.loads(tool_calls)),
        token_ids=unpack_ids(token_ids) if token_ids else None,
        name=name,
        tool_call_id=tool_call_id,
    )


def _says_something(turn: ModelMessage) -> bool:
    return bool(turn.content or turn.reasoning or turn.tool_calls or turn.token_ids)
