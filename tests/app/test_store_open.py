"""Opening a history: whatever state the file is in, the program starts and no chat is lost."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from store_samples import Clock, branched_chat, contents, exchange

from app.store.errors import BusyError, DamagedError, ReadOnlyError, StoreError
from app.store.history import History
from app.store.records import Answer
from engine.errors import UserError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "chats.db"


def open_briefly(path: Path) -> tuple[str, ...]:
    with closing(History.open(path)) as history:
        return history.notices


def scalar(path: Path, sql: str) -> object:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchone()[0]


def fill(path: Path, exchanges: int = 3) -> int:
    with closing(History.open(path)) as history:
        chat = history.chats.create()
        for i in range(exchanges):
            exchange(history, chat, f"question {i}", f"answer {i} " + "x" * 4_000)
        return chat.id


def test_new_history_is_empty_in_wal_mode_and_says_nothing(path: Path) -> None:
    with closing(History.open(path)) as history:
        assert (history.chats.list(), history.notices, history.read_only) == ([], (), False)
    assert scalar(path, "PRAGMA journal_mode") == "wal"
    assert sorted(file.name for file in path.parent.iterdir()) == ["chats.db"]


def test_what_was_written_is_there_after_reopening(path: Path) -> None:
    with closing(History.open(path)) as history:
        chat = branched_chat(history)
        before = history.messages.path(chat.id)
    with closing(History.open(path)) as history:
        assert history.chats.list() == [chat]
        assert history.messages.path(chat.id) == before


def test_closing_twice_is_harmless(path: Path) -> None:
    history = History.open(path)
    history.close()
    history.close()


class TestDamage:
    def check_set_aside(self, path: Path, damaged: bytes) -> None:
        with closing(History.open(path)) as history:
            (notice,) = history.notices
            kept = [file for file in path.parent.iterdir() if ".damaged." in file.name and file.suffix == ".db"]
            assert len(kept) == 1
            assert str(kept[0]) in notice
            assert kept[0].read_bytes() == damaged
            chat = history.chats.create()
            exchange(history, chat, "hello", "hi")
        assert open_briefly(path) == ()
        assert scalar(path, "SELECT count(*) FROM messages") == 2

    def test_file_that_is_no_database(self, path: Path) -> None:
        path.parent.mkdir()
        path.write_bytes(b"Dear diary, " * 1_000)
        self.check_set_aside(path, path.read_bytes())

    def test_truncated_file(self, path: Path) -> None:
        fill(path)
        path.write_bytes(path.read_bytes()[:-20_000])
        self.check_set_aside(path, path.read_bytes())

    def test_garbage_in_the_middle(self, path: Path) -> None:
        fill(path)
        data = bytearray(path.read_bytes())
        data[8_192:16_384] = os.urandom(8_192)
        path.write_bytes(data)
        self.check_set_aside(path, bytes(data))

    def test_database_of_another_program(self, path: Path) -> None:
        path.parent.mkdir()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE bookmarks (url TEXT)")
        self.check_set_aside(path, path.read_bytes())

    def test_two_damaged_files_in_one_second_are_both_kept(self, path: Path) -> None:
        path.parent.mkdir()
        for text in (b"one " * 500, b"two " * 500):
            path.write_bytes(text)
            History.open(path, clock=Clock()).close()
        kept = [file.read_bytes()[:3] for file in path.parent.iterdir() if ".damaged." in file.name]
        assert sorted(kept) == [b"one", b"two"]

    def test_what_belongs_to_the_damaged_file_goes_with_it(self, path: Path) -> None:
        path.parent.mkdir()
        path.write_bytes(b"garbage" * 1_000)
        path.with_name("chats.db-wal").write_bytes(b"more garbage")
        with closing(History.open(path)) as history:
            history.chats.create()
        names = [file.name for file in path.parent.iterdir()]
        assert sum(name.endswith(".db-wal") and ".damaged." in name for name in names) == 1


class TestNewerSchema:
    @pytest.fixture
    def newer(self, path: Path) -> Path:
        with closing(History.open(path)) as history:
            sent = history.messages.send(history.chats.create().id, "hello")
            history.messages.begin_answer(sent.id)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("INSERT INTO migrations VALUES ('0099_from_the_future', 0)")
            connection.commit()
        return path

    def test_is_readable_but_not_writable_and_stays_untouched(self, newer: Path) -> None:
        before = newer.read_bytes()
        with closing(History.open(newer)) as history:
            assert history.read_only
            assert "0099_from_the_future" in history.notices[0]
            (chat,) = history.chats.list()
            assert [message.state for message in history.messages.path(chat.id)] == ["done", "streaming"]
            assert [hit.chat for hit in history.search("hel")] == [chat]
            for write in (
                lambda: history.messages.send(chat.id, "more"),
                lambda: history.chats.delete(chat.id),
                history.messages.recover,
            ):
                with pytest.raises(ReadOnlyError):
                    write()
        assert newer.read_bytes() == before

    def test_that_cannot_be_read_says_so(self, newer: Path) -> None:
        with closing(sqlite3.connect(newer)) as connection:
            connection.execute("ALTER TABLE chats RENAME COLUMN pinned TO stuck")
        with closing(History.open(newer)) as history, pytest.raises(StoreError, match="newer"):
            history.chats.list()

    def test_whose_index_is_damaged_is_not_mended(self, newer: Path) -> None:
        with closing(sqlite3.connect(newer)) as connection:
            connection.execute("DELETE FROM message_index_data WHERE id > 10")
            connection.commit()
        with closing(History.open(newer)) as history, pytest.raises(DamagedError):
            history.search("hello")


class TestWriteLock:
    """Another program holds the lock that a write needs."""

    def test_waits_then_raises_without_losing_anything(self, path: Path) -> None:
        with closing(History.open(path, busy_timeout_s=0.2)) as history:
            chat = history.chats.create(title="Mine")
            history.messages.send(chat.id, "first")
            with closing(sqlite3.connect(path)) as other:
                other.execute("BEGIN IMMEDIATE")
                started = time.monotonic()
                with pytest.raises(BusyError) as caught:
                    history.messages.send(chat.id, "second")
                assert time.monotonic() - started >= 0.15
                assert isinstance(caught.value, UserError)
                assert caught.value.hint
                assert contents(history.messages.path(chat.id)) == ["first"]
            history.messages.send(chat.id, "second")
            assert contents(history.messages.path(chat.id)) == ["first", "second"]

    def test_released_in_time_goes_unnoticed(self, path: Path) -> None:
        with closing(History.open(path, busy_timeout_s=10)) as history:
            chat = history.chats.create()
            other = sqlite3.connect(path, check_same_thread=False)
            other.execute("BEGIN IMMEDIATE")
            release = threading.Timer(0.2, other.close)
            release.start()
            history.messages.send(chat.id, "patience")
            release.join()
            assert contents(history.messages.path(chat.id)) == ["patience"]

    def test_reading_does_not_wait_for_a_write_that_waits(self, path: Path) -> None:
        with closing(History.open(path, busy_timeout_s=2)) as history:
            chat = history.chats.create()
            history.messages.send(chat.id, "first")
            with closing(sqlite3.connect(path, check_same_thread=False)) as other:
                other.execute("BEGIN IMMEDIATE")
                sender = threading.Thread(target=history.messages.send, args=(chat.id, "second"))
                sender.start()
                time.sleep(0.1)
                started = time.monotonic()
                assert contents(history.messages.path(chat.id)) == ["first"]
                assert time.monotonic() - started < 1
            sender.join()
            assert contents(history.messages.path(chat.id)) == ["first", "second"]

    def test_a_failed_save_is_made_good_by_the_next(self, path: Path) -> None:
        with closing(History.open(path, busy_timeout_s=0.05)) as history:
            answer = history.messages.begin_answer(history.messages.send(history.chats.create().id, "hi").id)
            with closing(sqlite3.connect(path)) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(BusyError):
                    history.messages.save_answer(answer.id, Answer(content="one", token_ids=(1,)))
            history.messages.save_answer(answer.id, Answer(content="one two", token_ids=(1, 2)))
            assert history.messages.get(answer.id).content == "one two"
            assert history.messages.trace(answer.id).token_ids == (1, 2)

    def test_at_start_leaves_unfinished_answers_for_later(self, path: Path) -> None:
        with closing(History.open(path)) as history:
            history.messages.begin_answer(history.messages.send(history.chats.create().id, "hi").id)
        with closing(sqlite3.connect(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            with closing(History.open(path, busy_timeout_s=0.05)) as history:
                assert "in use by another program" in history.notices[0]
                assert len(history.chats.list()) == 1
        assert "cut short" in open_briefly(path)[0]


class TestTrouble:
    def test_full_disk_keeps_what_was_saved(self, path: Path) -> None:
        with closing(History.open(path)) as history:
            chat = history.chats.create()
            history.messages.send(chat.id, "first")
            with history.database.write() as connection:
                (pages,) = connection.execute("PRAGMA page_count").fetchone()
                connection.execute(f"PRAGMA max_page_count = {pages}")
            with pytest.raises(StoreError, match="disk is full"):
                history.messages.send(chat.id, "x" * 100_000)
            with history.database.write() as connection:
                connection.execute("PRAGMA max_page_count = 1000000")
            history.messages.send(chat.id, "second")
            assert contents(history.messages.path(chat.id)) == ["first", "second"]

    def test_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "data").write_text("a file where the folder should be")
        with pytest.raises(StoreError, match="cannot be used") as caught:
            History.open(tmp_path / "data" / "chats.db")
        assert caught.value.hint

    @pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
    def test_what_is_no_file_is_set_aside(self, path: Path, make: Callable[[Path], None]) -> None:
        path.parent.mkdir(parents=True)
        make(path)
        with closing(History.open(path)) as history:
            assert "is no file" in history.notices[0]
            exchange(history, history.chats.create(), "hello", "hi")
        assert open_briefly(path) == ()
        assert [file for file in path.parent.iterdir() if ".damaged." in file.name]

    def test_a_history_in_memory_takes_over(self) -> None:
        with closing(History.in_memory(notices=("not saved",))) as history:
            chat = branched_chat(history)
            assert history.notices == ("not saved",)
            assert [hit.chat.id for hit in history.search("haiku")] == [chat.id]

    def test_damaged_search_index_is_built_anew(self, path: Path) -> None:
        fill(path)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("DELETE FROM message_index_data WHERE id > 10")
            connection.commit()
        with closing(History.open(path)) as history:
            (hit,) = history.search("question")
            assert hit.snippet == "question 2"
            with history.database.write() as connection:
                connection.execute("INSERT INTO message_index (message_index, rank) VALUES ('integrity-check', 1)")

    def test_a_file_that_became_unwritable(self, path: Path) -> None:
        with closing(History.open(path)) as history:
            chat = history.chats.create(title="kept")
            with history.database.write() as connection:
                connection.execute("PRAGMA query_only = ON")
            with pytest.raises(StoreError, match="cannot be written"):
                history.messages.send(chat.id, "first")
            assert history.chats.list() == [chat]

    def test_a_damaged_file_that_cannot_be_renamed(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path.parent.mkdir()
        path.write_bytes(b"garbage" * 1_000)

        def refuse(*_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "replace", refuse)
        with pytest.raises(StoreError, match="could not be renamed"):
            History.open(path)
        assert path.read_bytes() == b"garbage" * 1_000

    def test_a_bug_in_reading_stays_a_bug(self) -> None:
        with (
            closing(History.in_memory()) as history,
            pytest.raises(sqlite3.OperationalError, match="nowhere"),
            history.database.read() as connection,
        ):
            connection.execute("SELECT * FROM nowhere")

    def test_a_bug_inside_a_transaction_undoes_it(self, path: Path) -> None:
        with closing(History.open(path)) as history:
            chat = history.chats.create()
            with pytest.raises(sqlite3.OperationalError, match="nowhere"), history.database.write() as connection:
                connection.execute("DELETE FROM chats").connection.execute("DELETE FROM nowhere")
            assert history.chats.list() == [chat]


def test_threads_write_and_read_at_once(path: Path) -> None:
    with closing(History.open(path)) as history:
        chats = [history.chats.create() for _ in range(4)]

        def talk(chat_id: int) -> None:
            for i in range(10):
                history.messages.send(chat_id, f"message {i}")
                history.messages.path(chat_id)

        threads = [threading.Thread(target=talk, args=(chat.id,)) for chat in chats]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for chat in chats:
            assert contents(history.messages.path(chat.id)) == [f"message {i}" for i in range(10)]


_STREAMER = """
import os, sys
from pathlib import Path
from app.store.history import History
from app.store.records import Answer
history = History.open(Path(sys.argv[1]))
chat = history.chats.create()
for turn in range(1000):
    sent = history.messages.send(chat.id, f"question {turn}")
    os.write(1, b"sent %d\\n" % turn)  # in one piece, also when the kill comes now
    answer = history.messages.begin_answer(sent.id)
    for n in range(1, 5):
        history.messages.save_answer(answer.id, Answer(content="word " * n, token_ids=tuple(range(n))))
        os.write(1, b"saved %d %d\\n" % (turn, n))
    history.messages.finish_answer(answer.id, Answer(content="word " * 5, token_ids=tuple(range(5))))
"""


@pytest.mark.parametrize("lines", [1, 2, 4, 23, 90])
def test_sigkill_in_the_middle_of_a_stream(path: Path, lines: int) -> None:
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", _STREAMER, str(path)], cwd=root, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    seen = [process.stdout.readline().split() for _ in range(lines)]
    process.send_signal(signal.SIGKILL)
    seen += [line.split() for line in process.stdout]
    process.stdout.close()
    process.wait()
    sent = sum(line[0] == "sent" for line in seen)
    with closing(History.open(path)) as history:
        (chat,) = history.chats.list()
        messages = history.messages.path(chat.id)
        questions = contents([message for message in messages if message.role == "user"])
        assert questions[:sent] == [f"question {turn}" for turn in range(sent)]
        assert all(message.state in ("done", "stopped") for message in messages)
        saves = [line for line in seen if line[0] == "saved"]
        if saves:
            _, turn, words = saves[-1]
            answer = messages[2 * int(turn) + 1]
            arrived = len(answer.content.split())
            assert arrived >= int(words)
            assert history.messages.trace(answer.id).token_ids == tuple(range(arrived))
            assert (answer.state, answer.finish_reason) in (("done", None), ("stopped", "cancelled"))
        stopped = sum(message.state == "stopped" for message in messages)
        assert bool(history.notices) == bool(stopped)
    assert scalar(path, "PRAGMA integrity_check") == "ok"
