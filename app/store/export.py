"""Chats as JSON with everything, and exports as files.

The JSON is one object: `format`, `version` and `chats`. A chat has the fields of `records.Chat` but the id, and
`messages` in the order in which they were written. A message has the fields of `records.Message` with `id` and `parent`
counted from 1 within the chat, `active` for the one on the active path among its siblings, and `token_ids` and `rounds`
(each [tokens, drafted, accepted, ms]). What is empty is left out. Settings of the program and the access token are no
part of it.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from app.files import write_atomically
from app.json_text import writable
from app.store.errors import StoreError
from app.store.history import History
from app.store.records import Json, Message, tool_calls_to_json
from app.store.rows import MESSAGE_COLUMNS, fetch_chat, read_message, read_trace, sound

FORMAT = "inkstand-chats"
VERSION = 1


def export_json(history: History, chat_ids: Iterable[int] | None = None) -> str:
    """Chats with all their branches, statistics and token ids; `import_json` makes equal ones of it.

    Args:
        chat_ids: all chats when None.
    """
    with history.database.read() as connection:
        if chat_ids is None:
            rows = connection.execute("SELECT id FROM chats WHERE deleted_at IS NULL ORDER BY id").fetchall()
            chat_ids = [chat_id for (chat_id,) in rows]
        chats = [_chat(connection, chat_id) for chat_id in chat_ids]
    head = _dumped({"format": FORMAT, "version": VERSION})
    return head[:-1] + ',"chats":[\n' + ",\n".join(chats) + "]}\n"


def write_export(path: Path, text: str) -> None:
    """Writes an export to where the user wants it. Raises StoreError, and then leaves what was there."""
    try:
        write_atomically(path, text)
    except OSError as error:
        raise StoreError(
            f"The export could not be written to {path} ({error.strerror or error}).", "Choose another folder."
        ) from error


def _chat(connection: sqlite3.Connection, chat_id: int) -> str:
    chat = fetch_chat(connection, chat_id)
    head = {
        "title": chat.title,
        "pinned": chat.pinned,
        "created_at": chat.created_at,
        "updated_at": chat.updated_at,
        "system_prompt": chat.system_prompt,
        "settings": writable(chat.settings),
    }
    # A message a line: short enough to compare two exports, and far quicker to write than an indented document.
    lines = ",\n".join(_dumped(message) for message in _messages(connection, chat_id))
    return f'{_dumped(head)[:-1]},"messages":[\n{lines}]}}'


@sound
def _parent_of(message: Message, numbers: Mapping[int | None, int | None]) -> int | None:
    return numbers[message.parent_id]


def _dumped(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Half a surrogate pair, which the JSON of a tool call may hold, is no UTF-8 and stays an escape.
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)


def _messages(connection: sqlite3.Connection, chat_id: int) -> Iterator[Json]:
    rows = connection.execute(
        f"SELECT {MESSAGE_COLUMNS}, active, token_ids, rounds FROM messages LEFT JOIN traces ON message_id = id "
        "WHERE chat_id = ? ORDER BY id",
        (chat_id,),
    )
    numbers: dict[int | None, int | None] = {None: None}
    for row in rows:
        *columns, active, token_ids, rounds = row
        message = read_message(tuple(columns), ())
        trace = read_trace(None if token_ids is None else (token_ids, rounds))
        numbers[message.id] = len(numbers)
        optional: Json = {
            "reasoning": message.reasoning,
            "name": message.name,
            "tool_calls": tool_calls_to_json(message.tool_calls),
            "tool_call_id": message.tool_call_id,
            "stats": writable(message.stats),
            "draft": writable(message.draft),
            "finish_reason": message.finish_reason,
            "error": message.error,
            "model": message.model,
            "options": writable(message.options),
            "reasoning_s": message.reasoning_s,
            "reasoning_tokens": message.reasoning_tokens,
            "token_ids": list(trace.token_ids),
            "rounds": [list(entry) for entry in trace.rounds],
        }
        yield {
            "id": numbers[message.id],
            "parent": _parent_of(message, numbers),
            "active": bool(active),
            "role": message.role,
            "state": "stopped" if message.state == "streaming" else message.state,
            "created_at": message.created_at,
            "content": message.content,
        } | {name: value for name, value in optional.items() if value not in ("", None, [], {})}
