"""Chatting in a process of its own: the program's window, offscreen, with somebody who types, edits and switches.

What the window shows is noted in a file that outlives the process; the next process, which finds the same history,
begins by looking for all of it.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["QT_QPA_PLATFORM"] = "offscreen"

import anyio._backends._asyncio  # noqa: F401 (imported on first use otherwise: in every child)
from PySide6.QtCore import Qt, QTimer
from PySide6.QtTest import QTest

from app.composition import Gui, run
from app.controllers.answers import Running
from app.engine_host import Checkpoint
from app.scripted import Said, Script, scripted_loader
from app.store.errors import MissingError
from app.store.records import Message
from engine.messages import Message as Turn
from engine.paths import HOME

TICK_MS = 8
WORDS = ["ink", "well", "nib", "quill", "page", "leaf", "blot", "stand", "vellum", "margin"]


def answer_to(prompt: str) -> str:
    """What the scripted model says; whoever knows the prompt knows it."""
    dice = random.Random(prompt)
    return " ".join(dice.choices(WORDS, k=dice.choice((8, 60, 250, 2500))))


class Notes:
    """Facts, one JSON array a line, written through to the system before anything else happens."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def add(self, *fact: object) -> None:
        os.write(self._file, json.dumps(fact).encode() + b"\n")


def read_notes(path: Path) -> list[list[Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


class Person:
    """Somebody at the window."""

    def __init__(self, gui: Gui, notes: Notes, seed: int, *, scripted: bool) -> None:
        self._gui, self._notes, self._scripted = gui, notes, scripted
        self._dice = random.Random(seed)
        self._count = 0
        self._seed = seed
        self._seen: set[int] = set()
        self._typed = ""
        """Stands in the composer and is to stay there for a while."""
        self._idle_until = 0.0
        chat, queue = gui.services.chat, gui.services.queue
        # After the views: what is noted is in sight.
        chat.added.connect(lambda _message: self._look())
        chat.path_changed.connect(lambda _path: self._look())
        queue.streamed.connect(self._streamed)
        queue.finished.connect(lambda running: self._settled(running.message))
        self._timer = QTimer(gui.window)
        self._timer.timeout.connect(self._act)

    def begin(self) -> None:
        self._timer.start(TICK_MS)

    def _look(self) -> None:
        for message in self._gui.window.page.transcript.messages:
            if message.role == "user" and message.id not in self._seen:
                self._seen.add(message.id)
                self._notes.add("sent", message.id, message.content)

    def _streamed(self, running: Running, _pieces: object, _events: object) -> None:
        self._notes.add("streamed", running.message.id, len(running.message.content), time.monotonic())

    def _settled(self, message: Message) -> None:
        self._notes.add("settled", message.id, message.state, message.content)

    def _act(self) -> None:
        s, page, dice = self._gui.services, self._gui.window.page, self._dice
        if s.chat.running is not None:
            if dice.random() < 0.01:
                s.chat.stop()
            return
        if self._typed and s.history.chats.unsent(place_of(self._gui)) == self._typed:
            self._notes.add("typed", place_of(self._gui), self._typed)
            self._typed, self._idle_until = "", time.monotonic() + dice.uniform(0.0, 0.4)
        if self._typed or time.monotonic() < self._idle_until:
            return
        self._notes.add("touched")
        mine = [message for message in s.chat.path if message.role == "user"]
        match dice.choices(
            ("send", "type", "edit", "retry", "new", "open", "rename", "delete"), (9, 3, 2, 2, 2, 2, 1, 1)
        )[0]:
            case "type":
                self._typed = self._text()
                page.composer.set_text(self._typed)
            case "send":
                page.composer.set_text(self._text())
                QTest.keyClick(page.composer.editor, Qt.Key.Key_Return)
            case "edit" if mine:
                page.transcript.edited.emit(dice.choice(mine).id, self._text())
            case "retry" if mine:
                s.chat.retry(dice.choice(mine).id)
            case "new":
                self._gui.window.new_chat()
            case "open" if chats := s.history.chats.list():
                self._gui.window.chats.open(dice.choice(chats).id)
            case "rename" if s.chat.chat is not None:
                s.chats.rename(s.chat.chat.id, self._text()[:40])
            case "delete" if s.chat.chat is not None:
                deleted = s.chat.chat.id
                s.chats.delete(deleted)
                s.chats.undo(deleted)
            case _:
                pass

    def _text(self) -> str:
        self._count += 1
        length = self._dice.choice((3, 10, 200, 4000)) if self._scripted else 4
        return f"{self._seed}.{self._count} " + " ".join(self._dice.choices(WORDS, k=length))


def place_of(gui: Gui) -> int | None:
    """Id of the chat in sight; None for the page of a new one."""
    chat = gui.services.chat.chat
    return None if chat is None else chat.id


def compare(gui: Gui, known: Sequence[list[Any]], notes: Notes, *, scripted: bool) -> None:
    """Look for everything that earlier processes have shown."""
    messages = gui.services.history.messages
    kept: dict[int, Message] = {}

    def find(message_id: int, what: str) -> Message | None:
        try:
            kept[message_id] = kept.get(message_id) or messages.get(message_id)
        except MissingError:
            notes.add("lost", f"{what} {message_id} is not in the history")
        return kept.get(message_id)

    for fact in known:
        if fact[0] == "sent":
            message = find(fact[1], "message")
            if message is not None and message.content != fact[2]:
                notes.add("lost", f"message {message.id} has another text")
        elif fact[0] == "settled":
            message = find(fact[1], "answer")
            if message is not None and (message.state, message.content) != (fact[2], fact[3]):
                notes.add("lost", f"answer {message.id} is {message.state} and not as it was shown")
        elif fact[0] == "streamed":
            message = find(fact[1], "answer")
            if message is None or not scripted:
                continue
            if message.parent_id is not None and not answer_to(messages.get(message.parent_id).content).startswith(
                message.content
            ):
                notes.add("lost", f"answer {message.id} is garbled")
    hands = [fact for fact in known if fact[0] in ("typed", "touched")]
    shown = [place_of(gui), gui.window.page.composer.text]
    if hands and hands[-1][0] == "typed" and shown != hands[-1][1:]:
        notes.add("lost", f"what was typed is not in sight, but {str(shown)[:80]}")
    if any(fact[0] == "sent" for fact in known) and not gui.services.history.chats.list():
        notes.add("lost", "the list of chats is empty")
    if not gui.window.isVisible() or gui.services.history.database.path is None or gui.services.history.read_only:
        notes.add("lost", "the window did not open with its history")


@dataclass(frozen=True)
class Visit:
    """One run of the program."""

    home: Path
    notes: Path
    seed: int
    scripted: bool
    leave: bool
    """Look for what is known, then quit."""
    since: int
    """Notes before this one were looked for already."""


def chat(visit: Visit) -> None:
    """Run the program; exits with 0 when it was quit."""
    os.environ[HOME], os.environ["HF_HOME"] = str(visit.home), str(visit.home / "hf")
    known, notes = read_notes(visit.notes)[visit.since :], Notes(visit.notes)

    def says(turns: Sequence[Turn]) -> Said:
        return Said(answer_to(turns[-1].content or ""), "")

    def opened(gui: Gui) -> None:
        compare(gui, known, notes, scripted=visit.scripted)
        notes.add("started", *gui.services.history.notices)
        person = Person(gui, notes, visit.seed, scripted=visit.scripted)
        if visit.leave:
            QTimer.singleShot(0, gui.window.request_quit)
        else:
            _when_loaded(gui, lambda: (notes.add("busy"), person.begin()))

    loader = scripted_loader(Script(says, rate=2000.0)) if visit.scripted else Checkpoint
    raise SystemExit(run([], loader=loader, opened=opened))


def _when_loaded(gui: Gui, begin: Callable[[], object]) -> None:
    host = gui.services.host

    def changed() -> None:
        if host.facts is not None:
            host.changed.disconnect(changed)
            begin()

    host.changed.connect(changed)
