"""Histories of older versions: brought up to date in one step, from a backup, or not at all."""

from __future__ import annotations

import re
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from store_samples import Clock, contents, exchange

from app.store import migrations as schema
from app.store.db import Database
from app.store.errors import BusyError, StoreError
from app.store.figures import draft_from_json, stats_from_json
from app.store.history import History
from app.store.migrations import MIGRATIONS, Migration

OLD = sorted((Path(__file__).parents[1] / "data" / "history").glob("*.sql"))
NAMES = [migration.name for migration in MIGRATIONS]


@pytest.fixture(params=OLD, ids=[file.stem for file in OLD])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A history file as an older version left it."""
    return make_old(tmp_path / "chats.db", request.param)


def make_old(path: Path, dump: Path) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"BEGIN; {dump.read_text(encoding='utf-8')} COMMIT;")
        connection.execute("PRAGMA journal_mode = WAL")
    return path


def applied(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(schema.applied(connection))


def backups(path: Path) -> list[Path]:
    return [file for file in path.parent.iterdir() if ".before-update-" in file.name]


def tables(connection: sqlite3.Connection) -> dict[str, str]:
    """Every object of the schema with its SQL, white space apart."""
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name <> 'migrations'")
    return {name: re.sub(r"\s+", "", sql) for name, sql in rows}


def test_an_old_history_is_complete_after_the_update(old: Path) -> None:
    with closing(History.open(old)) as history:
        assert [chat.title for chat in history.chats.list()] == ["Tide pools", ""]
        chat = history.chats.get(1)
        assert (chat.pinned, chat.system_prompt, chat.settings) == (True, "Answer in verse.", {"temperature": 0.2})
        assert contents(history.messages.path(1)) == ["Écris un haïku", "Le ciel dans les fla"]
        answer = history.messages.activate(2)[-1]
        assert (answer.content, answer.reasoning, answer.finish_reason) == (
            "Small pools hold the sky",
            "Five, seven, five.",
            "stop",
        )
        stats, draft = stats_from_json(answer.stats), draft_from_json(answer.draft)
        assert stats is not None
        assert stats.acceptance_length == 3.0
        assert draft is not None
        assert draft.block_size == 3
        trace = history.messages.trace(2)
        assert (trace.token_ids, trace.rounds) == ((7, 1, 65535), ((3, 2, 2, 12.5),))
        assert contents(history.messages.path(history.chats.undo_delete(2).id)) == ["Pancakes for two"]


def test_old_text_is_found(old: Path) -> None:
    with closing(History.open(old)) as history:
        assert [hit.message_id for hit in history.search("hold sky")] == [2]
        assert [hit.message_id for hit in history.search("haiku")] == [3]
        assert [hit.message_id for hit in history.search("le ciel")] == [5]
        assert [hit.title_ranges for hit in history.search("tide")] == [((0, 4),)]
        with history.database.write() as connection:
            for index in ("message_index", "title_index"):
                connection.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)")


def test_an_updated_history_goes_on(old: Path) -> None:
    with closing(History.open(old)) as history:
        chat = history.chats.get(5)
        sent, answer = exchange(history, chat, "And now?", "Now it goes on.")
        assert min(sent.id, answer.id) > 6
        assert history.chats.get(5).title == "And now?"
    with closing(History.open(old)) as history:
        assert history.notices == ()


def test_an_answer_that_was_being_written_is_kept_as_stopped(old: Path) -> None:
    with closing(History.open(old)) as history:
        assert (history.messages.get(5).state, history.messages.get(4).error) == ("stopped", "No model is loaded.")
        assert history.notices == ("An answer was cut short when Inkstand ended. What had arrived was kept.",)


def test_the_backup_is_the_history_as_it_was(old: Path) -> None:
    names = applied(old)
    with closing(sqlite3.connect(old)) as connection:
        before = list(connection.iterdump())
    History.open(old).close()
    assert applied(old) == NAMES
    (backup,) = backups(old)
    assert applied(backup) == names
    assert names[-1] in backup.name
    with closing(sqlite3.connect(backup)) as connection:
        assert list(connection.iterdump()) == before
    History.open(old).close()
    assert backups(old) == [backup]


def test_a_new_history_needs_no_backup(tmp_path: Path) -> None:
    History.open(tmp_path / "chats.db").close()
    assert applied(tmp_path / "chats.db") == NAMES
    assert [file.name for file in tmp_path.iterdir()] == ["chats.db"]


@pytest.mark.parametrize("dump", OLD, ids=lambda dump: dump.stem)
def test_released_steps_are_never_changed(dump: Path) -> None:
    with closing(sqlite3.connect(":memory:")) as ours, closing(sqlite3.connect(":memory:")) as released:
        schema.migrate(ours, 0.0, MIGRATIONS[: NAMES.index(dump.stem) + 1])
        released.executescript(dump.read_text(encoding="utf-8"))
        assert tables(ours) == tables(released)


def test_updating_from_any_step_gives_the_schema_of_a_new_file(old: Path) -> None:
    History.open(old).close()
    with closing(sqlite3.connect(":memory:")) as new, closing(sqlite3.connect(old)) as updated:
        schema.migrate(new, 0.0)
        assert tables(new) == tables(updated)


def test_every_step_but_the_last_has_its_old_history_and_names_are_in_order() -> None:
    assert [dump.stem for dump in OLD] == NAMES[:-1]
    assert sorted(set(NAMES)) == NAMES


def test_a_step_that_fails_leaves_everything_as_it_was(old: Path) -> None:
    with closing(sqlite3.connect(old)) as connection:
        before = list(connection.iterdump())
    broken = Migration("9999_broken", ("CREATE TABLE halfway (id INTEGER)", "INSERT INTO nowhere VALUES (1)"))
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        Database.open(old, migrations=(*MIGRATIONS, broken))
    with closing(sqlite3.connect(old)) as connection:
        assert list(connection.iterdump()) == before
    History.open(old).close()
    assert applied(old) == NAMES


def test_no_update_without_a_backup(old: Path) -> None:
    names = applied(old)
    clock = Clock()
    History.open(make_old(old.with_name("twin.db"), OLD[0]), clock=clock).close()
    (twin,) = (file for file in backups(old) if file.name.startswith("twin"))
    # A folder in its place is what keeps SQLite from writing the copy.
    in_the_way = twin.name.replace("twin", "chats").replace(OLD[0].stem, names[-1]) + ".part"
    (old.parent / in_the_way).mkdir()
    with pytest.raises(StoreError, match="no backup") as caught:
        History.open(old, clock=clock)
    assert "not touched" in caught.value.hint
    assert applied(old) == names


def test_what_a_killed_update_left_of_its_backup_is_removed(old: Path) -> None:
    name = f"chats.before-update-from-{applied(old)[-1]}.2020-01-01-000000.db"
    whole, half = old.with_name(name), old.with_name(f"{name}.part")
    whole.write_bytes(b"a backup of another day")
    half.write_bytes(b"half of one")
    half.with_name(f"{half.name}-journal").write_bytes(b"its journal")
    History.open(old).close()
    names = [file.name for file in old.parent.iterdir()]
    assert not [name for name in names if ".part" in name]
    assert whole.name in names
    assert len(backups(old)) == 2


def test_a_held_lock_puts_the_update_off(old: Path) -> None:
    names = applied(old)
    with closing(sqlite3.connect(old)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(BusyError):
            History.open(old, busy_timeout_s=0.05)
    assert applied(old) == names
    History.open(old).close()
    assert applied(old) == NAMES


def test_two_programs_update_at_once(old: Path) -> None:
    errors: list[BaseException] = []

    def start() -> None:
        try:
            History.open(old).close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert applied(old) == NAMES
