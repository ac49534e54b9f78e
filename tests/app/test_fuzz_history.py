"""Whatever the history file holds: the program starts, a damaged file is kept and told, and new chats are stored."""

from __future__ import annotations

import shutil
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_samples import branched_chat, exchange

from app.settings import Settings
from app.store.errors import DamagedError
from app.store.export import export_json
from app.store.history import History
from app.store.markdown import export_markdown
from engine.errors import UserError


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history with a few chats, branches and long answers."""
    path = tmp_path_factory.mktemp("sound") / "chats.db"
    with closing(History.open(path)) as history:
        branched_chat(history)
        chat = history.chats.create()
        for i in range(6):
            exchange(history, chat, f"question {i}", "answer " * 300)
    return path


def read_everything(history: History) -> None:
    """What the window reads, which may meet damage that no check at the start can see."""
    with suppress(UserError):
        for chat in history.chats.list():
            for message in history.messages.path(chat.id):
                history.messages.trace(message.id)
        history.search("answer")


@settings(max_examples=50)
@given(
    place=st.integers(0, 1_000_000),
    junk=st.binary(max_size=200),
    cut=st.booleans(),
    log=st.binary(max_size=64) | st.none(),
)
def test_any_damage_is_survived_or_kept_aside(
    sound: Path, place: int, junk: bytes, cut: bool, log: bytes | None
) -> None:
    folder = sound.parent / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    path = folder / "chats.db"
    data = sound.read_bytes()
    at = len(data) * place // 1_000_000
    damaged = data[:at] + junk + (b"" if cut else data[at + len(junk) :])
    path.write_bytes(damaged)
    if log is not None:
        path.with_name("chats.db-wal").write_bytes(log)
    with closing(History.open(path)) as history:
        kept = [file for file in folder.iterdir() if ".damaged." in file.name and file.suffix == ".db"]
        assert bool(kept) == any("damaged" in notice for notice in history.notices) or history.read_only
        if kept:
            assert kept[0].read_bytes() == damaged
            assert str(kept[0]) in history.notices[0]
            exchange(history, history.chats.create(), "hello", "hi")
        read_everything(history)
    with closing(History.open(path)) as again:
        read_everything(again)
        if kept:
            assert again.notices == ()
            assert len(again.chats.list()) == 1


def test_a_schema_of_an_unknown_format_is_kept_aside(sound: Path, tmp_path: Path) -> None:
    data = bytearray(sound.read_bytes())
    data[44:48] = (9).to_bytes(4, "big")  # the header's schema format number; SQLite reads up to 4
    path = tmp_path / "chats.db"
    path.write_bytes(data)
    with closing(History.open(path)) as history:
        assert "unsupported file format" in history.notices[0]
    assert bytes(data) in [file.read_bytes() for file in tmp_path.iterdir()]


def test_bytes_that_are_no_text_cost_a_character(sound: Path, tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    path.write_bytes(sound.read_bytes().replace(b"question 3", b"questi\x80n 3"))
    with closing(History.open(path)) as history:
        texts = [m.content for chat in history.chats.list() for m in history.messages.path(chat.id)]
    assert "questi\ufffdn 3" in texts


def test_garbled_columns_are_told_and_hide_no_other_chat(sound: Path, tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    shutil.copyfile(sound, path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE messages SET stats = '{', tool_calls = '[1]' WHERE content LIKE 'answer%'")
        connection.execute("UPDATE traces SET token_ids = x'010203'")
        connection.execute("UPDATE chats SET settings = '['")
        connection.commit()
    with closing(History.open(path)) as history:
        first, second = sorted(history.chats.list(), key=lambda chat: chat.id)
        with pytest.raises(DamagedError, match="garbled"):
            history.messages.path(second.id)
        with pytest.raises(DamagedError, match="garbled"):
            history.messages.trace(history.messages.path(first.id)[1].id)


GARBLED = [
    ("messages", "role", "0"),
    ("messages", "state", "x"),
    ("messages", "created_at", 1e300),
    ("messages", "content", b"\x03"),
    ("messages", "name", b"name"),
    ("messages", "parent_id", 99),
    ("messages", "tool_calls", '[{"name": 1, "arguments": {}, "id": null}]'),
    ("messages", "stats", "[" * 5000),
    ("messages", "options", "3"),
    ("messages", "reasoning_tokens", -1),
    ("traces", "rounds", "[[1, 2]]"),
    ("traces", "rounds", '[["a", 0, 0, 1.0]]'),
    ("chats", "title", b"\xff"),
    ("chats", "updated_at", "yesterday"),
    ("chats", "settings", '{"temperature": "hot"}'),
    ("chats", "settings", "[" * 5000),
]


@pytest.mark.parametrize(("table", "column", "value"), GARBLED, ids=[f"{row[1]}-{row[2]!s:.12}" for row in GARBLED])
def test_a_value_of_another_type_is_told_or_left_out(
    sound: Path, tmp_path: Path, table: str, column: str, value: object
) -> None:
    path = tmp_path / "chats.db"
    shutil.copyfile(sound, path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = (SELECT max(rowid) FROM {table})", (value,))
        connection.commit()
    with closing(History.open(path)) as history:
        chats = history.chats.list()
        assert len(chats) == 2
        if table == "chats":
            for chat in chats:
                Settings().with_overrides(chat.settings)
                time.localtime(chat.updated_at)
                export_markdown(history, chat.id)
            return
        with pytest.raises(DamagedError, match="garbled"):
            export_json(history)
        read_everything(history)


@pytest.mark.parametrize(("old", "new"), [(b"updated_at", b"updated_bt"), (b"content = '", b"cantent = '")])
def test_a_name_in_the_schema_that_is_another_one_is_damage(
    sound: Path, tmp_path: Path, old: bytes, new: bytes
) -> None:
    path = tmp_path / "chats.db"
    path.write_bytes(sound.read_bytes().replace(old, new))
    with closing(History.open(path)) as history:
        assert "is damaged" in history.notices[0]
        exchange(history, history.chats.create(), "hello", "hi")
