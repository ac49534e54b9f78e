"""A history whose columns and pages hold anything."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from fuzz_paths import folder, told
from guard import confined
from hypothesis import strategies as st

from app.store.export import export_json
from app.store.figures import draft_from_json, stats_from_json
from app.store.history import History
from app.store.markdown import export_markdown
from app.store.records import Answer, Round
from engine.errors import UserError
from engine.messages import ToolCall

T = TypeVar("T")
TREE = ("parent_id", "active", "role", "state", "created_at")
SAID = ("content", "reasoning", "name", "tool_calls", "tool_call_id", "error")
FIGURES = ("stats", "draft", "finish_reason", "model", "options", "reasoning_s", "reasoning_tokens")
COLUMNS = {
    "chats": ("title", "pinned", "created_at", "updated_at", "deleted_at", "system_prompt", "settings"),
    "messages": (*TREE, *SAID, *FIGURES),
    "traces": ("token_ids", "rounds"),
    "unsent": ("chat_id", "content", "in_sight"),
    "migrations": ("name", "applied_at"),
}
JSON_TEXTS = st.sampled_from(
    (
        "[]",
        "{}",
        "null",
        "3",
        '"x"',
        "[1]",
        "[{}]",
        '[{"name":1,"arguments":2,"id":3}]',
        "[[1,2]]",
        "[[1,2,3,4,5]]",
        "NaN",
    )
) | st.sampled_from(
    (
        "{",
        "[[1,2,3,4,5]]",
        "[" * 5000,
        '{"rounds": "many"}',
        "9" * 5000,
        "1e999",
        '{"temperature": "hot"}',
        '{"a": {"a": NaN}}',
    )
)
VALUES = (
    st.none()
    | st.integers(-3, 9)
    | st.sampled_from([2**63 - 1, -(2**63)])
    | st.sampled_from([float("inf"), 1e300, -1e18])
    | st.text(max_size=8)
    | st.binary(max_size=9)
    | JSON_TEXTS
)


@dataclass(frozen=True)
class Change:
    """One column of one row, or of all rows of a table."""

    table: str
    column: str
    value: object
    row: int | None


CHANGES = st.lists(
    st.sampled_from([(table, column) for table, columns in COLUMNS.items() for column in columns]).flatmap(
        lambda place: st.builds(Change, st.just(place[0]), st.just(place[1]), VALUES, st.none() | st.integers(1, 5))
    ),
    min_size=1,
    max_size=4,
)
PAGES = st.lists(st.tuples(st.integers(0, 1_000_000), st.binary(min_size=1, max_size=8)), max_size=3)


@cache
def sound() -> bytes:
    """A history with a branch, a tool call, an answer with all its figures, and unsent text."""
    path = folder() / "sound.db"
    with closing(History.open(path)) as history:
        for title in ("one", "two"):
            chat = history.chats.create(title=title, system_prompt="Be kind.", settings={"temperature": 0.5})
            question = history.messages.send(chat.id, f"question {title}")
            for text in ("an answer", "another answer"):
                answer = history.messages.begin_answer(question.id, model="demo", options={"seed": 1})
                history.messages.finish_answer(
                    answer.id,
                    Answer(
                        content=text,
                        reasoning="hm",
                        tool_calls=(ToolCall("f", {"a": [1]}, "c"),),
                        token_ids=(1, 2, 3),
                        rounds=(Round(3, 2, 2, 1.5),),
                        stats={"rounds": 1},
                        draft={"requested": "auto"},
                        finish_reason="stop",
                        reasoning_s=0.5,
                        reasoning_tokens=2,
                    ),
                )
            history.chats.set_unsent(chat.id, "not yet", in_sight=True)
    return path.read_bytes()


def history_rows(changes: list[Change], pages: list[tuple[int, bytes]]) -> None:
    """Whatever stands in it, the history opens; what cannot be read is told, and new chats are stored."""
    home = folder() / "history"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    path = home / "chats.db"
    path.write_bytes(sound())
    with closing(sqlite3.connect(path)) as connection, suppress(sqlite3.IntegrityError):
        for change in changes:
            where = "" if change.row is None else f" WHERE rowid = {change.row}"
            connection.execute(f"UPDATE {change.table} SET {change.column} = ?{where}", (change.value,))
        connection.commit()
    data = bytearray(path.read_bytes())
    for place, junk in pages:
        at = 100 + (len(data) - 100) * place // 1_000_001
        data[at : at + len(junk)] = junk
    path.write_bytes(data)
    with confined(home):
        for _ in range(2):
            with closing(History.open(path)) as history:
                use(history)


def use(history: History) -> None:
    """Everything that the window does with chats."""
    chats = attempt(history.chats.list) or []
    attempt(history.chats.cut_off)
    assert isinstance(attempt(lambda: history.chats.unsent(None)) or "", str)
    for chat in chats:
        str(chat.display_title).encode()
        assert isinstance(attempt(lambda chat=chat: history.chats.unsent(chat.id)) or "", str)
        attempt(lambda chat=chat: export_markdown(history, chat.id))
        for message in attempt(lambda chat=chat: history.messages.path(chat.id)) or ():
            assert message.id in message.siblings
            stats_from_json(message.stats)
            draft_from_json(message.draft)
            attempt(lambda message=message: history.messages.trace(message.id))
            attempt(lambda message=message: history.messages.context(message.id))
    attempt(lambda: history.search("answer"))
    attempt(lambda: export_json(history))
    attempt(lambda: history.chats.purge_deleted(0.0))
    if not history.read_only:
        fresh = attempt(lambda: history.chats.create(title="new"))
        if fresh is not None:
            attempt(lambda: history.messages.send(fresh.id, "hello"))


def attempt(read: Callable[[], T]) -> T | None:
    """What `read` gives, or None where it is told that it cannot."""
    try:
        return read()
    except UserError as error:
        told(error)
        return None
