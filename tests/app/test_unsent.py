"""What is typed and not sent: stored while it is typed, shown again after a kill, never in the way of the typing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.attachments import Attachment, compose
from app.composition import Gui
from app.controllers import unsent
from app.scripted import Script, scripted_loader
from app.store.chats import Chats
from app.store.errors import StoreError
from app.store.records import CutOff

if TYPE_CHECKING:
    from conftest import Opened

Wait = Callable[..., None]


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsent, "PAUSE_MS", 40)


@pytest.fixture
def again(opened: Opened, script: Script) -> Callable[[], Gui]:
    """Another window on the same history: what a start finds after the first was killed."""
    return lambda: opened(scripted_loader(script))


def write(gui: Gui, text: str) -> None:
    QTest.keyClicks(gui.window.page.composer.editor, text)


def send(gui: Gui, text: str, wait: Wait) -> int:
    write(gui, text)
    QTest.keyClick(gui.window.page.composer.editor, Qt.Key.Key_Return)
    wait(lambda: not gui.services.queue.busy)
    assert gui.services.chat.chat is not None
    return gui.services.chat.chat.id


def stored(gui: Gui, chat_id: int | None) -> str:
    return gui.services.history.chats.unsent(chat_id)


def in_sight(gui: Gui) -> tuple[int | None, str]:
    chat = gui.services.chat.chat
    return None if chat is None else chat.id, gui.window.page.composer.text


def test_text_of_a_chat_survives_a_kill(gui: Gui, again: Callable[[], Gui], wait: Wait) -> None:
    first, second = send(gui, "one", wait), (gui.window.new_chat(), send(gui, "two", wait))[1]
    gui.window.chats.open(first)
    write(gui, "half a thou")
    wait(lambda: stored(gui, first) == "half a thou")
    assert in_sight(again()) == (first, "half a thou")
    # Left in good order, it stays with its chat and says no more about the next start.
    gui.window.chats.open(second)
    assert gui.services.history.chats.cut_off() is None
    assert stored(gui, first) == "half a thou"


def test_text_on_the_page_of_a_new_chat_survives_a_kill(gui: Gui, again: Callable[[], Gui], wait: Wait) -> None:
    send(gui, "one", wait)
    gui.window.new_chat()
    write(gui, "about to begin")
    wait(lambda: stored(gui, None) == "about to begin")
    new = again()
    assert in_sight(new) == (None, "about to begin")
    chat_id = send(new, "", wait)
    assert [m.content for m in new.services.chat.path if m.role == "user"] == ["about to begin"]
    assert (stored(new, None), stored(new, chat_id)) == ("", "")


def test_the_page_of_a_new_chat_keeps_its_text_like_any_chat(gui: Gui, wait: Wait) -> None:
    chat_id = send(gui, "one", wait)
    gui.window.new_chat()
    write(gui, "later")
    gui.window.chats.open(chat_id)
    assert in_sight(gui) == (chat_id, "")
    gui.window.new_chat()
    gui.window.new_chat()
    assert in_sight(gui) == (None, "later")


def test_attachments_are_kept_with_the_text(gui: Gui, again: Callable[[], Gui], tmp_path: Path, wait: Wait) -> None:
    (tmp_path / "notes.txt").write_text("ink\npaper")
    composer = gui.window.page.composer
    composer.attach_files([tmp_path / "notes.txt"])
    write(gui, " what is missing ")
    whole = compose(" what is missing ", [Attachment("notes.txt", "ink\npaper")])
    wait(lambda: stored(gui, None) == whole)
    after = again().window.page.composer
    assert (after.text, after.content) == (composer.text, composer.content)


def test_what_is_emptied_is_gone(gui: Gui, again: Callable[[], Gui], wait: Wait) -> None:
    write(gui, "nonsense")
    wait(lambda: stored(gui, None) == "nonsense")
    gui.window.page.composer.clear()
    wait(lambda: stored(gui, None) == "")
    assert gui.services.history.chats.cut_off() is None
    assert in_sight(again()) == (None, "")


def test_somebody_who_never_pauses_is_kept_too(gui: Gui, monkeypatch: pytest.MonkeyPatch, wait: Wait) -> None:
    monkeypatch.setattr(unsent, "PAUSE_MS", 60_000)
    monkeypatch.setattr(unsent, "LONGEST_S", 0.2)
    end = time.monotonic() + 20
    while not stored(gui, None):
        assert time.monotonic() < end
        write(gui, "x")
        wait(lambda: True)


def test_typing_waits_for_no_disk(gui: Gui, monkeypatch: pytest.MonkeyPatch, wait: Wait) -> None:
    threads, on, original = list[str](), threading.Event(), Chats.set_unsent

    def slow(self: Chats, chat_id: int | None, text: str, *, in_sight: bool = False) -> None:
        threads.append(threading.current_thread().name)
        assert on.wait(20)
        original(self, chat_id, text, in_sight=in_sight)

    monkeypatch.setattr(Chats, "set_unsent", slow)
    write(gui, "one")
    wait(lambda: threads)
    write(gui, " two")
    assert gui.window.page.composer.text == "one two"
    on.set()
    wait(lambda: stored(gui, None) == "one two")
    assert {name.rpartition("_")[0] for name in threads} == {"inkstand-history"}


def test_what_was_to_be_stored_when_it_was_sent_does_not_come_back(gui: Gui, wait: Wait) -> None:
    busy, on = threading.Event(), threading.Event()
    gui.services.queue.later(lambda: (busy.set(), on.wait(20)))
    wait(busy.is_set)
    write(gui, "hello")
    timer = gui.window.chats._unsent._timer  # pyright: ignore[reportPrivateUsage]
    wait(lambda: not timer.isActive())
    QTest.keyClick(gui.window.page.composer.editor, Qt.Key.Key_Return)
    on.set()
    wait(lambda: not gui.services.queue.busy and not timer.isActive())
    gui.services.queue.later(busy.clear)
    wait(lambda: not busy.is_set())
    chat = gui.services.chat.chat
    assert chat is not None
    assert (stored(gui, None), stored(gui, chat.id)) == ("", "")


def test_a_message_that_cannot_be_stored_is_kept_as_typed(
    gui: Gui, monkeypatch: pytest.MonkeyPatch, wait: Wait
) -> None:
    chat_id = send(gui, "one", wait)

    def full(*_: object) -> None:
        raise StoreError("The disk is full.", "Make room.")

    monkeypatch.setattr(gui.services.history.messages, "send", full)
    write(gui, "two")
    QTest.keyClick(gui.window.page.composer.editor, Qt.Key.Key_Return)
    assert in_sight(gui) == (chat_id, "two")
    wait(lambda: stored(gui, chat_id) == "two")


def test_a_store_that_fails_is_made_good_by_the_next_change(
    gui: Gui, monkeypatch: pytest.MonkeyPatch, wait: Wait
) -> None:
    failed, original = threading.Event(), Chats.set_unsent

    def once(self: Chats, chat_id: int | None, text: str, *, in_sight: bool = False) -> None:
        if not failed.is_set():
            failed.set()
            raise StoreError("The disk is full.", "Make room.")
        original(self, chat_id, text, in_sight=in_sight)

    monkeypatch.setattr(Chats, "set_unsent", once)
    write(gui, "one")
    wait(failed.is_set)
    write(gui, " two")
    wait(lambda: stored(gui, None) == "one two")
    assert not gui.window.page.toast.isVisible()


def test_deleting_a_chat_keeps_its_text_for_the_undo(gui: Gui, wait: Wait) -> None:
    gui.window.new_chat()
    write(gui, "for a new one")
    gui.window.chats.keep_unsent()
    gui.window.page.composer.clear()
    chat_id = send(gui, "one", wait)
    gui.services.history.chats.set_unsent(None, "for a new one")
    write(gui, "and another")
    gui.window.chats.delete()
    assert in_sight(gui) == (None, "for a new one")
    gui.services.chats.undo(chat_id)
    gui.window.chats.open(chat_id)
    assert in_sight(gui) == (chat_id, "and another")


def test_a_chat_that_cannot_be_shown_does_not_change_what_is_typed(gui: Gui, wait: Wait) -> None:
    chat_id = send(gui, "one", wait)
    write(gui, "two")
    gui.window.chats.open(chat_id + 1)
    assert in_sight(gui) == (chat_id, "two")


def test_a_deleted_chat_is_not_where_a_start_begins(gui: Gui, wait: Wait) -> None:
    chat_id = send(gui, "one", wait)
    history = gui.services.history
    history.chats.set_unsent(chat_id, "two", in_sight=True)
    assert history.chats.cut_off() == CutOff(chat_id)
    history.chats.delete(chat_id)
    assert history.chats.cut_off() is None
    history.chats.set_unsent(None, "three", in_sight=True)
    assert history.chats.cut_off() == CutOff(None)
    history.chats.undo_delete(chat_id)
    assert history.chats.cut_off() == CutOff(None), "one place at a time"


def test_after_the_end_nothing_is_stored(opened: Opened, script: Script, wait: Wait) -> None:
    gui = opened(scripted_loader(script))
    write(gui, "last words")
    gui.window.request_quit()
    assert stored(gui, None) == "last words"
    assert gui.services.history.chats.cut_off() is None
    gui.window.page.composer.clear()
    assert not gui.window.chats._unsent._timer.isActive()  # pyright: ignore[reportPrivateUsage]
