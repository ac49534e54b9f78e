"""Chats from files. A file is read and checked as a whole before anything of it is stored, in one transaction."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from app.settings import SettingsError, check_overrides
from app.store.errors import ImportFileError
from app.store.export import FORMAT, VERSION
from app.store.history import History
from app.store.markdown import parse_markdown
from app.store.reading import HINT, MAX_ID, MAX_TIME, Entry, is_integer, is_number, parse_json
from app.store.records import Chat, Conversation, Json, Message, Node, Round, State, Trace, load_tool_calls
from app.store.rows import insert_chat, insert_message, store_trace
from engine.messages import Role

MAX_BYTES = 256 * 2**20
_MAX_CHATS = 20_000
_MAX_MESSAGES = 200_000
_MAX_TEXT = 64 * 2**20
_MAX_NAME = 1_000
_MAX_TOKENS = 2**24
_ROLES = ("user", "assistant", "tool", "system")
_STATES = ("done", "stopped", "failed")


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What was added to the history."""

    chat_ids: tuple[int, ...]
    messages: int


def import_file(history: History, path: Path) -> ImportReport:
    """Adds the chats of an exported file, JSON or Markdown, told apart by their contents.

    Raises:
        ImportFileError: it cannot be read or is no such file; the field that is wrong is named.
    """
    text = _read(path)
    return import_json(history, text) if text.lstrip()[:1] in ("{", "[") else import_markdown(history, text)


def import_json(history: History, text: str) -> ImportReport:
    """Adds the chats of a JSON export. Raises ImportFileError, and then nothing was added."""
    document = Entry(parse_json(text, "The file"), "")
    if document.text("format", _MAX_NAME, "") != FORMAT:
        raise document.wrong("format", f'"{FORMAT}"')
    version = document.integer("version", 1, MAX_ID)
    if version > VERSION:
        raise ImportFileError(
            f"The file is of version {version}; this Inkstand reads up to version {VERSION}.", "Update Inkstand."
        )
    chats = document.items("chats", _MAX_CHATS, required=True)
    return _store(history, [_conversation(Entry(raw, f"chats[{i}]")) for i, raw in enumerate(chats)])


def import_markdown(history: History, text: str) -> ImportReport:
    """Adds the chat of a Markdown export. Raises ImportFileError when no message is marked in it."""
    return _store(history, [parse_markdown(text, history.database.clock())])


def _read(path: Path) -> str:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ImportFileError(f"{path} is not a file.", "Choose an exported .json or .md file.")
        if status.st_size > MAX_BYTES:
            raise ImportFileError(
                f"{path} has {status.st_size / 1e6:,.0f} MB; at most {MAX_BYTES / 1e6:,.0f} MB can be imported.",
                "Export the chats in several files.",
            )
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ImportFileError(f"{path} cannot be read ({error.strerror or error}).", "Choose another file.") from error
    except UnicodeDecodeError as error:
        raise ImportFileError(
            f"{path} is not text in UTF-8 (byte {error.start}).", "Choose an exported .json or .md file."
        ) from error


def _store(history: History, conversations: Sequence[Conversation]) -> ImportReport:
    chat_ids: list[int] = []
    with history.database.write() as connection:
        for conversation in conversations:
            chat_id = insert_chat(connection, conversation.chat)
            new_ids: dict[int | None, int | None] = {None: None}
            for node in conversation.nodes:
                message = replace(node.message, chat_id=chat_id, parent_id=new_ids[node.message.parent_id])
                new_id = insert_message(connection, message, active=node.active)
                if node.trace.token_ids or node.trace.rounds:
                    store_trace(connection, new_id, node.trace)
                new_ids[node.message.id] = new_id
            chat_ids.append(chat_id)
    return ImportReport(tuple(chat_ids), sum(len(conversation.nodes) for conversation in conversations))


def _conversation(entry: Entry) -> Conversation:
    chat = Chat(
        id=0,
        title=entry.text("title", _MAX_NAME, ""),
        pinned=entry.flag("pinned", False),
        created_at=entry.number("created_at", 0, MAX_TIME),
        updated_at=entry.number("updated_at", 0, MAX_TIME),
        system_prompt=entry.text("system_prompt", _MAX_TEXT, ""),
        settings=_settings(entry),
    )
    raw = entry.items("messages", _MAX_MESSAGES, required=True)
    entries = [Entry(item, f"{entry.where}.messages[{i}]") for i, item in enumerate(raw)]
    return Conversation(chat, _with_active_path([_node(one) for one in entries], entries))


def _settings(entry: Entry) -> Json:
    settings = entry.free("settings") or {}
    try:
        check_overrides(settings)
    except SettingsError as error:
        raise ImportFileError(f"{entry.where}.settings: {error.title}", HINT) from error
    return settings


def _node(entry: Entry) -> Node:
    message = Message(
        id=entry.integer("id", 0, MAX_ID),
        chat_id=0,
        parent_id=entry.integer_or_none("parent", 0, MAX_ID),
        role=cast("Role", entry.choice("role", _ROLES)),
        state=cast("State", entry.choice("state", _STATES)),
        content=entry.text("content", _MAX_TEXT),
        reasoning=entry.text("reasoning", _MAX_TEXT, ""),
        name=entry.text_or_none("name", _MAX_NAME),
        tool_calls=load_tool_calls(_tool_calls(entry)),
        tool_call_id=entry.text_or_none("tool_call_id", _MAX_NAME),
        stats=entry.free("stats"),
        draft=entry.free("draft"),
        finish_reason=entry.text_or_none("finish_reason", _MAX_NAME),
        error=entry.text_or_none("error", _MAX_TEXT),
        created_at=entry.number("created_at", 0, MAX_TIME),
        model=entry.text("model", _MAX_NAME, ""),
        options=entry.free("options") or {},
        reasoning_s=entry.number_or_none("reasoning_s", 0, MAX_TIME),
        reasoning_tokens=entry.integer_or_none("reasoning_tokens", 0, MAX_ID),
        siblings=(),
    )
    return Node(message, entry.flag("active", False), Trace(_token_ids(entry), _rounds(entry)))


def _tool_calls(entry: Entry) -> list[Json]:
    calls = [
        Entry(raw, f"{entry.where}.tool_calls[{i}]") for i, raw in enumerate(entry.items("tool_calls", _MAX_MESSAGES))
    ]
    return [
        {
            "name": call.text("name", _MAX_NAME),
            "arguments": call.free("arguments") or {},
            "id": call.text_or_none("id", _MAX_NAME),
        }
        for call in calls
    ]


def _token_ids(entry: Entry) -> tuple[int, ...]:
    ids = entry.items("token_ids", _MAX_TOKENS)
    for i, value in enumerate(ids):
        if not is_integer(value, 0, MAX_ID):
            raise entry.wrong_item("token_ids", i, value, f"a whole number from 0 to {MAX_ID}")
    return tuple(ids)


def _rounds(entry: Entry) -> tuple[Round, ...]:
    rounds: list[Round] = []
    for i, value in enumerate(entry.items("rounds", _MAX_TOKENS)):
        if not _is_round(value):
            raise entry.wrong_item("rounds", i, value, "[tokens, drafted, accepted, ms]")
        rounds.append(Round(*value))
    return tuple(rounds)


def _is_round(value: object) -> bool:
    if not isinstance(value, list):
        return False
    numbers = cast("list[Any]", value)
    counts_fit = len(numbers) == 4 and all(is_integer(count, 0, MAX_ID) for count in numbers[:3])
    return counts_fit and is_number(numbers[3], 0, MAX_TIME)


def _with_active_path(nodes: Sequence[Node], entries: Sequence[Entry]) -> list[Node]:
    """Checks that the messages are a tree, and makes exactly one of each group of siblings the active one.

    A parent must come before its children, which rules out circles.
    """
    seen: set[int] = set()
    active: dict[int | None, int] = {}
    newest: dict[int | None, int] = {}
    for node, entry in zip(nodes, entries, strict=True):
        number, parent = node.message.id, node.message.parent_id
        if number in seen:
            raise entry.wrong("id", "a number that no other message of the chat has")
        if parent is not None and parent not in seen:
            raise entry.wrong("parent", "null or the id of a message further up")
        if node.active and parent in active:
            raise entry.wrong("active", f"false, since message {active[parent]} beside it is the active one")
        if node.active:
            active[parent] = number
        seen.add(number)
        newest[parent] = number
    chosen = newest | active
    return [replace(node, active=chosen[node.message.parent_id] == node.message.id) for node in nodes]
