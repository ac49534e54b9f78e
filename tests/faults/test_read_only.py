"""Folders that cannot be written: the window opens, says so, and keeps what it can."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from disks import ReadOnly
from person import said, send, shown
from window_fixtures import Opened, Wait

from app.scripted import Script, scripted_loader
from app.store.errors import ReadOnlyError
from app.store.history import History
from engine.cli.main import main
from engine.errors import UserError
from engine.hub.errors import HubError
from engine.hub.jobs import lock_download
from engine.hub.library import Library
from engine.hub.manager import DownloadManager
from engine.hub.manifest import FileEntry, Manifest
from engine.hub.storage import remove_model, verify_model
from engine.installed import open_library, read_facts
from engine.paths import HOME, user_paths

TINY = Path(__file__).parents[1] / "data" / "inkling-tiny"
ROOT = Path(__file__).parents[2]


def make_history(*, killed: bool = False) -> Path:
    """A history with one message, left by a process that quit or was killed."""
    path = user_paths().data / "history.sqlite3"
    program = (
        "import os, sys; from pathlib import Path; from app.store.history import History\n"
        "history = History.open(Path(sys.argv[1])); history.messages.send(history.chats.create().id, 'kept')\n"
        + ("os._exit(0)" if killed else "history.close()")
    )
    subprocess.run([sys.executable, "-c", program, str(path)], cwd=ROOT, check=True)
    return path


@pytest.mark.parametrize("killed", [False, True], ids=["after a quit", "after a kill"])
def test_chats_in_a_read_only_folder_can_be_read(
    killed: bool, read_only: ReadOnly, opened: Opened, script: Script
) -> None:
    make_history(killed=killed)
    read_only(user_paths().data)
    gui = opened(scripted_loader(script))
    assert "cannot be written" in said(gui)
    assert "make the file and its folder writable" in said(gui)
    assert gui.window.windowTitle() == "New chat (read-only) – Inkstand"
    entry = gui.services.history.chats.list()[0]
    gui.window.chats.open(entry.id)
    assert shown(gui) == ["kept"]
    send(gui, "and this?")
    assert "nothing can be saved" in said(gui)
    assert shown(gui) == ["kept"]
    assert gui.window.page.composer.text == "and this?"
    assert [hit.chat.id for hit in gui.services.history.search("kept")] == [entry.id]


def test_an_old_history_in_a_read_only_folder_is_read_in_todays_form(tmp_path: Path, read_only: ReadOnly) -> None:
    from kill_migrate import VERSIONS, make_old, rows

    for version in VERSIONS:
        folder = tmp_path / version.stem
        folder.mkdir()
        make_old(folder / "history.sqlite3", version)
        before = rows(folder / "history.sqlite3")
        read_only(folder)
        with closing(History.open(folder / "history.sqlite3")) as history:
            assert history.read_only
            assert [message.id for message in history.messages.path(1)]
            assert len(history.search("question 77 about")) == 1
            with pytest.raises(ReadOnlyError):
                history.messages.send(1, "more")
        assert [file.name for file in folder.iterdir()] == ["history.sqlite3"]
        assert len(before) > 1


def test_the_first_start_with_a_folder_that_cannot_be_written(
    inkstand_home: Path, read_only: ReadOnly, opened: Opened, script: Script
) -> None:
    read_only(inkstand_home)
    gui = opened(scripted_loader(script), greedy=False)
    assert "Chats of this run are not kept" in said(gui)
    assert str(user_paths().data) in said(gui)
    assert "Errno" not in said(gui)
    send(gui, "hello")
    assert shown(gui) == ["hello"]
    assert gui.window.windowTitle() == "hello (chats are not kept) – Inkstand"


def test_a_file_where_the_data_folder_should_be(
    inkstand_home: Path, opened: Opened, script: Script, wait: Wait
) -> None:
    (inkstand_home / "data").write_text("mine")
    gui = opened(scripted_loader(script))
    assert "Chats of this run are not kept" in said(gui)
    send(gui, "hello")
    wait(lambda: not gui.services.queue.busy)
    assert shown(gui) == ["hello"]
    asyncio.run(gui.models.open())
    assert (inkstand_home / "data").read_text() == "mine"


def test_settings_that_cannot_be_written_hold_for_this_run(
    read_only: ReadOnly, opened: Opened, script: Script, wait: Wait
) -> None:
    gui = opened(scripted_loader(script))
    read_only(user_paths().config)
    gui.services.preferences.update(font_size=19)
    assert gui.services.theme.base == 19
    assert "settings could not be written" in said(gui)
    assert "writable" in said(gui)
    send(gui, "hello")
    wait(lambda: not gui.services.queue.busy)
    opened.close(gui)
    gui = opened(scripted_loader(script))
    assert gui.services.preferences.value.font_size == 13
    gui.window.chats.open(gui.services.history.chats.list()[0].id)
    assert shown(gui) == ["hello"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_chats_of_another_user(public_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME, str(public_folder))
    path = make_history()
    program = (
        "import os, sys; from pathlib import Path; from app.store.history import History; os.setuid(65534)\n"
        "history = History.open(Path(sys.argv[1])); print(history.read_only, *history.notices)\n"
        "print(history.messages.path(history.chats.list()[0].id)[0].content)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True")
    assert "cannot be written" in done.stdout
    assert done.stdout.endswith("kept\n")


class TestModels:
    """What the library is asked for when it cannot be written is refused in words."""

    @pytest.fixture
    def library(self, tmp_path: Path) -> Library:
        """One downloaded model."""
        data = user_paths().data
        folder = data / "models" / "owner" / "tiny"
        shutil.copytree(TINY, folder)
        manifest = Manifest("owner/tiny", "https://example.com", "main", "c" * 40)
        for file in list(folder.iterdir()):
            stat = file.stat()
            manifest.files[file.name] = FileEntry(stat.st_size, "0" * 64, "0" * 64, stat.st_mtime_ns)
            manifest.expected[file.name] = stat.st_size
        manifest.save(folder)
        return Library(data, read_facts, cache=tmp_path / "hf")

    def test_the_list_is_complete_and_changes_are_refused(self, library: Library, read_only: ReadOnly) -> None:
        read_only(user_paths().data)
        (model,) = library.models()
        assert model.loadable
        for change in (
            lambda: library.pair(model, None),
            lambda: library.unpair(model) or library.pair(model, None),
            lambda: library.add_folder(TINY),
            lambda: verify_model(model),
            lambda: remove_model(model, library.journals),
        ):
            with pytest.raises(HubError) as caught:
                change()
            assert caught.value.hint, caught.value
        assert library.models() == [model]
        assert sorted(path.name for path in model.path.iterdir()) == sorted(
            [*(path.name for path in TINY.iterdir()), ".inkstand.json"]
        )

    def test_a_download_is_refused_before_anything_is_fetched(self, library: Library, read_only: ReadOnly) -> None:
        library.journals.mkdir()
        read_only(user_paths().data)

        async def attempt() -> tuple[str, ...]:
            async with DownloadManager(library.journals) as manager:
                with pytest.raises(HubError) as caught:
                    lock_download(library.journals, library.models_folder / "owner" / "name")
                assert caught.value.hint
                return await manager.restore()

        assert asyncio.run(attempt()) == ()

    def test_the_commands_end_with_a_message(
        self, library: Library, read_only: ReadOnly, capsys: pytest.CaptureFixture[str]
    ) -> None:
        read_only(user_paths().data)
        for command in (["models", "list"], ["info"]):
            assert main(command) == 0
        for command in (
            ["models", "remove", "owner/tiny", "--yes"],
            ["models", "verify", "owner/tiny"],
            ["models", "folders", "--add", str(TINY)],
        ):
            code = main(command)
            error = capsys.readouterr().err
            assert code == 2, (command, error)
            assert "Traceback" not in error
            assert error.startswith("error: ")

    def test_a_broken_file_of_the_library_is_read_as_none(self, library: Library) -> None:
        for text in (b"", b"{", b"\xff\xfe", b"[]", b'{"folders": 3}'):
            (user_paths().data / "library.json").write_bytes(text)
            assert [model.name for model in library.models()] == ["owner/tiny"]

    def test_a_folder_where_the_library_keeps_its_file(self, library: Library) -> None:
        (user_paths().data / "library.json").mkdir()
        assert [model.name for model in library.models()] == ["owner/tiny"]
        with pytest.raises(UserError, match="cannot be stored"):
            library.add_folder(TINY)


def test_a_crash_report_finds_a_place(read_only: ReadOnly, inkstand_home: Path) -> None:
    from engine.cli.main import write_crash_report

    read_only(inkstand_home)
    try:
        raise ZeroDivisionError("for the report")
    except ZeroDivisionError:
        report = write_crash_report(["generate"])
    assert "for the report" in report.read_text(encoding="utf-8")
    shutil.rmtree(report.parent)


def test_the_library_opens_without_its_folder(inkstand_home: Path, read_only: ReadOnly) -> None:
    read_only(inkstand_home)
    assert isinstance(open_library().models(), list)
