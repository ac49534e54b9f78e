"""Targets that read the program's own files, or one that the user imports."""

from __future__ import annotations

from contextlib import closing

from fuzz_paths import folder, told, written
from guard import confined

from app.settings_file import SettingsFile
from app.store.export import export_json
from app.store.history import History
from app.store.importing import import_file
from app.store.markdown import export_markdown
from app.views.window_state import unpack
from engine.errors import UserError
from engine.hub.journal import Journal, read_journal
from engine.hub.library_settings import SettingsFile as LibrarySettings
from engine.hub.manifest import load_manifest
from engine.hub.names import MANIFEST


def journal(data: bytes) -> None:
    path = written("journal.jsonl", data)
    with confined(folder()):
        state = read_journal(path)
        for record in state.files.values():
            if record.size < 1 << 20:
                assert 0 <= record.chunks().done <= record.size
            record.holds(record.identity, record.size, 10)
        with closing(Journal(path)) as opened:
            opened.set_state("paused")
        assert read_journal(path).files.keys() == state.files.keys()


def manifest(data: bytes) -> None:
    place = folder() / "model"
    place.mkdir(exist_ok=True)
    (place / MANIFEST).write_bytes(data)
    with confined():
        found = load_manifest(place)
        if found is not None:
            found.missing(place)
            found.corrupt()
            assert all(not name.startswith("/") and ".." not in name.split("/") for name in found.files)


def library(data: bytes) -> None:
    found = LibrarySettings(written("library.json", data)).read()
    assert all(isinstance(name, str) for name in found.folders)
    assert found.models is None or isinstance(found.models, str)


def settings(data: bytes) -> None:
    path = written("settings.json", data)
    with confined(folder()):
        file = SettingsFile(path)
        loaded = file.load()
        file.save(loaded.settings)
        assert file.load().settings == loaded.settings
    for kept in folder().glob("settings.damaged.*"):
        kept.unlink()


def window_state(data: bytes) -> None:
    state = unpack(data)
    assert state is None or all(isinstance(size, int) for size in state.split)


def imported(data: bytes) -> None:
    """A file that is imported is stored so that everything of it can be read and exported again."""
    path = written("chats.json", data)
    with confined(folder()), closing(History.in_memory()) as history:
        try:
            report = import_file(history, path)
        except UserError as error:
            told(error)
            assert history.chats.list() == []
            return
        assert len(history.chats.list()) == len(report.chat_ids)
        for chat in report.chat_ids:
            for message in history.messages.path(chat):
                history.messages.trace(message.id)
            export_markdown(history, chat)
        history.search("hello")
        again = written("again.json", export_json(history).encode()) if report.chat_ids else None
        if again is not None:
            assert import_file(history, again).messages == report.messages
