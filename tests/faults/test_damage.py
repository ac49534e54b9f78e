"""Files that are not what they should be: kept aside, replaced by fresh ones, and the window says which."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from person import said, send, shown
from window_fixtures import Opened, Wait

from app.scripted import Script, scripted_loader
from app.store.history import History
from engine.paths import user_paths

ROOT = Path(__file__).parents[2]
_MAKE = """
import os, sys
from pathlib import Path
from app.store.history import History
history = History.open(Path(sys.argv[1]))
chat = history.chats.create()
for turn in range(40):
    history.messages.send(chat.id, f"message {turn} " + "x" * 500)
if sys.argv[2] == "killed":
    os._exit(0)
history.close()
"""
Damage = Callable[[Path], None]


def wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


@pytest.fixture
def make() -> Callable[[str], Path]:
    """Makes a history of 40 messages in a process that quit or was killed."""

    def run(how: str) -> Path:
        path = user_paths().data / "history.sqlite3"
        subprocess.run([sys.executable, "-c", _MAKE, str(path), how], cwd=ROOT, check=True)
        assert wal(path).exists() == (how == "killed")
        return path

    return run


def aside(path: Path) -> list[Path]:
    """What was kept of damaged files."""
    return sorted(file for file in path.parent.iterdir() if ".damaged." in file.name)


def garbage(path: Path) -> None:
    path.write_bytes(os.urandom(5_000))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9_000])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def holes(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096 * 3 : 4096 * 12] = os.urandom(4096 * 9)
    path.write_bytes(data)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("mine")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def other_program(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")


@pytest.mark.parametrize(
    ("how", "damage"),
    [
        ("quit", garbage),
        ("quit", cut),
        ("quit", holes),
        ("quit", folder),
        ("quit", pipe),
        ("quit", other_program),
        ("killed", garbage),
        ("killed", emptied),
        ("killed", folder),
    ],
)
def test_a_damaged_history_is_kept_and_a_new_one_used(
    how: str, damage: Damage, *, make: Callable[[str], Path], opened: Opened, script: Script, wait: Wait
) -> None:
    path = make(how)
    damage(path)
    log = wal(path).read_bytes() if wal(path).exists() else None
    gui = opened(scripted_loader(script))
    kept = aside(path)
    assert kept
    assert str(kept[0]) in said(gui)
    assert "new chat history was started" in said(gui)
    if log is not None:
        assert [file.read_bytes() for file in kept if file.name.endswith("-wal")] == [log]
    if damage is folder:
        assert (kept[0] / "inside").read_text() == "mine"
    send(gui, "from here on")
    wait(lambda: not gui.services.queue.busy)
    opened.close(gui)
    gui = opened(scripted_loader(script))
    assert said(gui) == ""
    gui.window.chats.open(gui.services.history.chats.list()[0].id)
    assert shown(gui) == ["from here on"]
    assert aside(path) == kept


def test_an_emptied_history_without_a_log_is_a_new_one(make, opened: Opened, script: Script) -> None:
    path = make("quit")
    emptied(path)
    gui = opened(scripted_loader(script))
    assert said(gui) == ""
    send(gui, "hello")
    assert shown(gui) == ["hello"]


class TestLog:
    """The write-ahead log holds what was sent last."""

    def open(self, opened: Opened, script: Script) -> tuple[str, list[str]]:
        gui = opened(scripted_loader(script))
        gui.window.show()
        chats = gui.services.history.chats.list()
        if chats:
            gui.window.chats.open(chats[0].id)
        notice = said(gui)
        send(gui, "goes on")
        return notice, shown(gui)

    def test_a_whole_one_is_taken_over(self, make, opened: Opened, script: Script) -> None:
        path = make("killed")
        notice, messages = self.open(opened, script)
        assert (notice, len(messages), aside(path)) == ("", 41, [])

    def test_without_its_shared_memory(self, make, opened: Opened, script: Script) -> None:
        path = make("killed")
        path.with_name(path.name + "-shm").unlink()
        notice, messages = self.open(opened, script)
        assert (notice, len(messages)) == ("", 41)

    def test_with_garbage_for_shared_memory(self, make, opened: Opened, script: Script) -> None:
        path = make("killed")
        path.with_name(path.name + "-shm").write_bytes(os.urandom(32_768))
        notice, messages = self.open(opened, script)
        assert (notice, len(messages)) == ("", 41)

    def test_garbage_is_kept_and_said(self, make, opened: Opened, script: Script) -> None:
        path = make("killed")
        garbage(wal(path))
        was = wal(path).read_bytes()
        notice, messages = self.open(opened, script)
        assert messages[-1] == "goes on"
        assert "last messages may be missing" in notice or "new chat history was started" in notice
        (kept,) = (file for file in aside(path) if file.read_bytes() == was)
        assert str(kept) in notice

    def test_a_hole_in_it_is_said_and_a_copy_kept(self, make, opened: Opened, script: Script) -> None:
        path = make("killed")
        data = bytearray(wal(path).read_bytes())
        middle = 32 + (4096 + 24) * (len(data) // (4096 + 24) * 3 // 4) + 200
        data[middle : middle + 50] = os.urandom(50)
        wal(path).write_bytes(data)
        notice, messages = self.open(opened, script)
        assert "last messages may be missing" in notice
        assert 0 < len(messages) - 1 < 40
        assert messages[:3] == [f"message {turn} " + "x" * 500 for turn in range(3)]
        (kept,) = aside(path)
        assert str(kept) in notice
        assert kept.read_bytes() == bytes(data)

    def test_a_torn_end_is_no_damage(self, make, opened: Opened, script: Script) -> None:
        path = make("killed")
        with wal(path).open("ab") as file:
            file.write(os.urandom(1_000))
        notice, messages = self.open(opened, script)
        assert (notice, len(messages), aside(path)) == ("", 41, [])

    def test_zeros_after_a_power_cut_are_no_damage(self, make, opened: Opened, script: Script) -> None:
        path = make("quit")
        wal(path).write_bytes(b"\0" * 8_192)
        notice, messages = self.open(opened, script)
        assert (notice, len(messages), aside(path)) == ("", 41, [])

    def test_left_behind_without_its_history(self, make, opened: Opened, script: Script) -> None:
        path = make("killed")
        was = wal(path).read_bytes()
        path.unlink()
        notice, messages = self.open(opened, script)
        assert "its log is not" in notice
        assert messages == ["goes on"]
        assert was in [file.read_bytes() for file in aside(path)]


def test_a_newer_history_is_shown_and_left_alone(make, opened: Opened, script: Script) -> None:
    path = make("quit")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO migrations VALUES ('0099_from_the_future', 0)")
        connection.commit()
    before = path.read_bytes()
    gui = opened(scripted_loader(script))
    assert "newer version" in said(gui)
    assert "Start the newest version" in said(gui)
    gui.window.chats.open(gui.services.history.chats.list()[0].id)
    assert len(shown(gui)) == 40
    send(gui, "and now?")
    assert "nothing can be saved" in said(gui)
    assert "newest version" in said(gui)
    assert gui.window.page.composer.text == "and now?"
    opened.close(gui)
    assert path.read_bytes() == before


def test_a_folder_that_damage_cannot_be_kept_in(make, opened: Opened, script: Script, read_only) -> None:
    path = make("quit")
    garbage(path)
    was = path.read_bytes()
    read_only(path.parent)
    gui = opened(scripted_loader(script))
    assert "could not be renamed" in said(gui)
    assert "not kept" in said(gui)
    assert path.read_bytes() == was


def test_the_history_disappears_under_the_window(make, opened: Opened, script: Script, wait: Wait) -> None:
    """A sync tool or a person removes the data folder: what was sent before is gone, what cannot be kept is told."""
    path = make("quit")
    gui = opened(scripted_loader(script))
    gui.window.chats.open(gui.services.history.chats.list()[0].id)
    shutil.rmtree(path.parent)
    send(gui, "still there?")
    wait(lambda: not gui.services.queue.busy)
    opened.close(gui)
    gui = opened(scripted_loader(script))
    send(gui, "afresh")
    assert shown(gui) == ["afresh"]


class TestSettings:
    @pytest.mark.parametrize(
        "text",
        [b"", b"\0" * 300, b"{", b"[]", b"\xff\xfe\x00", b"null", b"1" * 5_000, b"[" * 100_000],
        ids=["empty", "zeros", "half", "list", "no text", "null", "number", "nested"],
    )
    def test_damaged_ones_are_kept_and_defaults_used(self, text: bytes, opened: Opened, script: Script) -> None:
        path = user_paths().config / "settings.json"
        path.parent.mkdir(parents=True)
        path.write_bytes(text)
        gui = opened(scripted_loader(script))
        (kept,) = (file for file in path.parent.iterdir() if ".damaged." in file.name)
        assert kept.read_bytes() == text
        assert str(kept) in said(gui)
        assert gui.services.preferences.value.font_size == 13
        gui.services.preferences.update(font_size=20)
        opened.close(gui)
        assert json.loads(path.read_text())["font_size"] == 20

    @pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
    def test_what_is_no_file_is_kept_and_defaults_used(
        self, make: Callable[[Path], None], opened: Opened, script: Script
    ) -> None:
        path = user_paths().config / "settings.json"
        path.parent.mkdir(parents=True)
        make(path)
        gui = opened(scripted_loader(script))
        assert "defaults are used" in said(gui)
        gui.services.preferences.update(font_size=20)
        opened.close(gui)
        assert json.loads(path.read_text())["font_size"] == 20


def test_a_history_that_becomes_damaged_while_it_is_open(make, opened: Opened, script: Script, wait: Wait) -> None:
    path = make("quit")
    gui = opened(scripted_loader(script))
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(200_000))
    gui.services.history.database._writer.execute("PRAGMA shrink_memory")
    gui.window.chats.open(1)
    send(gui, "hello?")
    wait(lambda: not gui.services.queue.busy)
    opened.close(gui)
    gui = opened(scripted_loader(script))
    assert "new chat history was started" in said(gui)
    with closing(History.open(path)) as history:
        assert history.notices == ()


def test_an_old_history_that_cannot_be_brought_up_to_date_is_left_alone(opened: Opened, script: Script) -> None:
    """Somebody has made a table by hand that an update wants to make."""
    from kill_migrate import VERSIONS, make_old, rows

    path = user_paths().data / "history.sqlite3"
    path.parent.mkdir()
    make_old(path, next(version for version in VERSIONS if version.stem.startswith("0003")))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE unsent (mine TEXT)")
        connection.commit()
    before = rows(path)
    gui = opened(scripted_loader(script))
    assert str(path) in said(gui)
    assert "Chats of this run are not kept" in said(gui)
    send(gui, "hello")
    assert shown(gui) == ["hello"]
    opened.close(gui)
    assert rows(path) == before


def test_what_killed_writers_left_is_cleared_away(tmp_path: Path) -> None:
    from app.files import write_atomically
    from engine.hub.manifest import write_json

    def write_settings(path: Path) -> None:
        write_atomically(path, "{}")

    for write, left in ((write_settings, ".a[1].json.x.tmp"), (lambda path: write_json(path, {}), "a[1].jsonx.tmp")):
        stale, fresh, other = tmp_path / left, tmp_path / left.replace("x", "y"), tmp_path / ".b.json.x.tmp"
        for file in (stale, fresh, other):
            file.touch()
        long_ago = stale.stat().st_mtime - 3600
        os.utime(stale, (long_ago, long_ago))
        os.utime(other, (long_ago, long_ago))
        write(tmp_path / "a[1].json")
        assert not stale.exists()
        assert fresh.exists(), "somebody may be writing it"
        assert other.exists()
