"""Rows of the tables as records, inside a transaction that the caller holds."""

from __future__ import annotations

import functools
import json
import sqlite3
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Literal, ParamSpec, TypeVar, cast, get_args

from app.settings import SettingsError, check_overrides
from app.store.errors import DamagedError, MissingError
from app.store.reading import MAX_ID, MAX_TIME, is_integer, is_number
from app.store.records import (
    Chat,
    Json,
    Message,
    Round,
    State,
    Trace,
    dump,
    dump_rounds,
    dump_tool_calls,
    load_object,
    load_tool_calls,
    pack_ids,
    storable,
    unpack_ids,
)
from app.store.titles import one_line
from engine.messages import Role

P = ParamSpec("P")
T = TypeVar("T")
CHAT_COLUMNS = "c.id, c.title, c.pinned, c.created_at, c.updated_at, c.system_prompt, c.settings"
MESSAGE_COLUMNS = (
    "id, chat_id, parent_id, role, state, content, reasoning, name, tool_calls, tool_call_id, stats, draft, "
    "finish_reason, error, created_at, model, options, reasoning_s, reasoning_tokens"
)


def sound(read: Callable[P, T]) -> Callable[P, T]:
    """Makes a `DamagedError` of what a reader of columns meets in garbled ones, which no check of SQLite's notices."""

    @functools.wraps(read)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except (ValueError, KeyError, TypeError, RecursionError, struct.error) as error:
            raise DamagedError(
                f"A part of this chat is garbled in the history ({error}).",
                "Other chats are not affected. Export them, and restore the history from a backup if there is one.",
            ) from error

    return checked


def read_chat(row: tuple[Any, ...]) -> Chat:
    """A chat from its `CHAT_COLUMNS`. What is garbled in them becomes empty: it must not hide the list."""
    chat_id, title, pinned, created_at, updated_at, system_prompt, packed = row
    settings: Json | None = None
    with suppress(ValueError, TypeError, RecursionError, SettingsError):
        check_overrides(found := load_object(packed) or {})
        settings = found
    return Chat(
        id=chat_id,
        title=title if isinstance(title, str) else "",
        pinned=bool(pinned),
        created_at=created_at if is_number(created_at, 0, MAX_TIME) else 0.0,
        updated_at=updated_at if is_number(updated_at, 0, MAX_TIME) else 0.0,
        system_prompt=system_prompt if isinstance(system_prompt, str) else "",
        settings=settings or {},
    )


def fetch_chat(connection: sqlite3.Connection, chat_id: int) -> Chat:
    """Raises MissingError for a chat that is deleted."""
    row = connection.execute(
        f"SELECT {CHAT_COLUMNS} FROM chats c WHERE id = ? AND deleted_at IS NULL", (chat_id,)
    ).fetchone()
    if row is None:
        raise missing("chat")
    return read_chat(row)


def insert_chat(connection: sqlite3.Connection, chat: Chat) -> int:
    """Stores everything but the id, and returns the id that SQLite gave."""
    cursor = connection.execute(
        "INSERT INTO chats (title, pinned, created_at, updated_at, system_prompt, settings) VALUES (?, ?, ?, ?, ?, ?)",
        (
            one_line(storable(chat.title)),
            chat.pinned,
            chat.created_at,
            chat.updated_at,
            storable(chat.system_prompt),
            dump(chat.settings),
        ),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


@sound
def read_message(row: tuple[Any, ...], siblings: tuple[int, ...]) -> Message:
    """A message from its `MESSAGE_COLUMNS`."""
    return Message(
        id=row[0],
        chat_id=row[1],
        parent_id=row[2],
        role=cast("Role", _one_of(row[3], get_args(Role))),
        state=cast("State", _one_of(row[4], get_args(State))),
        content=_text(row[5]),
        reasoning=_text(row[6]),
        name=_optional(_text, row[7]),
        tool_calls=() if row[8] == "[]" else load_tool_calls(json.loads(row[8])),
        tool_call_id=_optional(_text, row[9]),
        stats=load_object(row[10]),
        draft=load_object(row[11]),
        finish_reason=_optional(_text, row[12]),
        error=_optional(_text, row[13]),
        created_at=_time(row[14]),
        model=_text(row[15]),
        options=load_object(row[16]) or {},
        reasoning_s=_optional(_time, row[17]),
        reasoning_tokens=_optional(_count, row[18]),
        siblings=siblings,
    )


def insert_message(connection: sqlite3.Connection, message: Message, *, active: bool) -> int:
    """Stores everything but the id and the siblings, and returns the id that SQLite gave."""
    values = (
        message.chat_id,
        message.parent_id,
        active,
        message.role,
        message.state,
        storable(message.content),
        storable(message.reasoning),
        _storable(message.name),
        dump_tool_calls(message.tool_calls),
        _storable(message.tool_call_id),
        dump(message.stats),
        dump(message.draft),
        _storable(message.finish_reason),
        _storable(message.error),
        message.created_at,
        storable(message.model),
        dump(message.options),
        message.reasoning_s,
        message.reasoning_tokens,
    )
    cursor = connection.execute(
        "INSERT INTO messages (chat_id, parent_id, active, role, state, content, reasoning, name, tool_calls, "
        "tool_call_id, stats, draft, finish_reason, error, created_at, model, options, reasoning_s, reasoning_tokens) "
        f"VALUES ({', '.join('?' * len(values))})",
        values,
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def read_path(connection: sqlite3.Connection, chat_id: int) -> list[Message]:
    """The active path. Raises MissingError when the chat was purged."""
    if connection.execute("SELECT 1 FROM chats WHERE id = ?", (chat_id,)).fetchone() is None:
        raise missing("chat")
    children: dict[int | None, list[int]] = defaultdict(list)
    chosen: dict[int | None, int] = {}
    for message_id, parent_id, active in connection.execute(
        "SELECT id, parent_id, active FROM messages WHERE chat_id = ? ORDER BY id", (chat_id,)
    ):
        children[parent_id].append(message_id)
        if active:
            chosen[parent_id] = message_id
    siblings: dict[int, tuple[int, ...]] = {}
    parent: int | None = None
    while (child := chosen.get(parent)) is not None:
        siblings[child] = tuple(children[parent])
        parent = child
    return [read_message(row, siblings[row[0]]) for row in message_rows(connection, siblings)]


@sound
def read_trace(row: tuple[bytes, str] | None) -> Trace:
    """A trace from its columns."""
    if row is None:
        return Trace((), ())
    rounds = (
        Round(_count(tokens), _count(drafted), _count(accepted), _time(ms))
        for tokens, drafted, accepted, ms in json.loads(row[1])
    )
    return Trace(unpack_ids(row[0]), tuple(rounds))


def store_trace(connection: sqlite3.Connection, message_id: int, trace: Trace) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO traces (message_id, token_ids, rounds) VALUES (?, ?, ?)",
        (message_id, pack_ids(trace.token_ids), dump_rounds(trace.rounds)),
    )


def message_rows(connection: sqlite3.Connection, ids: Iterable[int]) -> list[tuple[Any, ...]]:
    # One parameter for any number of ids: SQLite limits how many a statement may have.
    return connection.execute(
        f"SELECT {MESSAGE_COLUMNS} FROM messages WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id",
        (json.dumps(list(ids)),),
    ).fetchall()


def fetch_message(connection: sqlite3.Connection, message_id: int) -> Message:
    rows = message_rows(connection, (message_id,))
    if not rows:
        raise missing("message")
    siblings = connection.execute(
        "SELECT id FROM messages WHERE chat_id = ? AND parent_id IS ? ORDER BY id", (rows[0][1], rows[0][2])
    )
    return read_message(rows[0], tuple(sibling for (sibling,) in siblings))


def missing(what: Literal["chat", "message"]) -> MissingError:
    return MissingError(f"This {what} is no longer in the history.", "Its chat was deleted; start a new one.")


def _storable(text: str | None) -> str | None:
    return None if text is None else storable(text)


# SQLite keeps what it is given, so a column may hold a value of any type.


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} in place of text")
    return value


def _time(value: object) -> float:
    if not is_number(value, 0, MAX_TIME):
        raise ValueError(f"{value!r:.20} in place of a time")
    return value


def _count(value: object) -> int:
    if not is_integer(value, 0, MAX_ID):
        raise ValueError(f"{value!r:.20} in place of a count")
    return value


def _one_of(value: object, accepted: tuple[str, ...]) -> str:
    if value not in accepted:
        raise ValueError(f"{value!r:.20} in place of {' or '.join(accepted)}")
    return cast("str", value)


def _optional(read: Callable[[object], T], value: object) -> T | None:
    return None if value is None else read(value)
