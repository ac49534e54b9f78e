"""Saving answers: never in the window's way, never out of order, never forgotten."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.background import Outcome
from app.bridge import Bridge
from app.controllers.saving import SAVE_S, SHARE, AnswerWriter, Ending
from app.store.errors import BusyError, MissingError
from app.store.history import History
from app.store.records import Answer, Message

Wait = Callable[..., None]


class Gate:
    """Holds the writes of a history until it is opened."""

    def __init__(self, history: History, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.waiting = threading.Event()
        for name in ("save_answer", "finish_answer"):
            monkeypatch.setattr(history.messages, name, self._held(getattr(history.messages, name)))

    def _held(self, write: Callable[..., object]) -> Callable[..., object]:
        def held(*args: object, **named: object) -> object:
            self.waiting.set()
            assert self.open.wait(10)
            return write(*args, **named)

        return held


@dataclass
class Desk:
    """A writer on a history with one answer under way."""

    path: Path
    history: History
    bridge: Bridge
    clock: list[float]
    outcomes: list[Outcome[Message]] = field(default_factory=list[Outcome[Message]])

    def __post_init__(self) -> None:
        self.writer = AnswerWriter(self.history, self.bridge, now=lambda: self.clock[0])
        chat = self.history.chats.create()
        self.answer = self.history.messages.begin_answer(self.history.messages.send(chat.id, "Hello").id).id

    def progress(self, text: str) -> None:
        self.clock[0] += 1
        self.writer.progress(self.answer, lambda: Answer(content=text))

    def finish(self, text: str) -> None:
        self.writer.finish(Ending(self.answer, Answer(content=text), "done", None), self.outcomes.append)

    def stored(self) -> tuple[str, str]:
        message = self.history.messages.get(self.answer)
        return message.state, message.content

    def close(self) -> None:
        self.bridge.close()
        self.writer.close()


@pytest.fixture
def desk(tmp_path: Path, qapp: object) -> Iterator[Desk]:
    path = tmp_path / "history.sqlite3"
    made = Desk(path, History.open(path, busy_timeout_s=0.05), Bridge(), [100.0])
    yield made
    made.close()
    made.history.close()


@pytest.fixture
def locked(desk: Desk) -> Iterator[sqlite3.Connection]:
    """Another program in the middle of a write."""
    other = sqlite3.connect(desk.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield other
    other.close()


def test_a_write_that_hangs_does_not_stop_the_window(desk: Desk, wait: Wait, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(desk.history, monkeypatch)
    desk.progress("half")
    assert gate.waiting.wait(5)
    desk.finish("half and half")
    turns: list[int] = []
    desk.bridge.post(lambda _events: turns.append(1), None)
    wait(lambda: turns)
    assert not desk.outcomes, "nothing is called stored before it is"
    gate.open.set()
    wait(lambda: desk.outcomes)
    assert desk.outcomes[0].get().content == "half and half"


def test_the_end_is_written_last_however_late_the_save_before_it(
    desk: Desk, wait: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(desk.history, monkeypatch)
    desk.progress("half")
    assert gate.waiting.wait(5)
    desk.finish("all of it")
    desk.progress("late")
    gate.open.set()
    wait(lambda: desk.outcomes)
    assert desk.stored() == ("done", "all of it")


def test_a_locked_history_is_tried_again(desk: Desk, locked: sqlite3.Connection, wait: Wait) -> None:
    desk.finish("all of it")
    wait(lambda: desk.outcomes)
    assert isinstance(desk.outcomes[0].error, BusyError)
    locked.execute("ROLLBACK")
    wait(lambda: desk.stored() == ("done", "all of it"))
    assert len(desk.outcomes) == 1


def test_what_could_not_be_saved_is_saved_at_quit(desk: Desk, locked: sqlite3.Connection, wait: Wait) -> None:
    desk.finish("all of it")
    wait(lambda: desk.outcomes)
    assert desk.stored() == ("streaming", "")
    locked.execute("ROLLBACK")
    desk.close()
    assert desk.stored() == ("done", "all of it")


def test_quitting_waits_for_what_is_being_written(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(desk.history, monkeypatch)
    desk.progress("half")
    assert gate.waiting.wait(5)
    desk.finish("all of it")
    threading.Timer(0.1, gate.open.set).start()
    desk.close()
    assert desk.stored() == ("done", "all of it")


def test_an_answer_of_a_deleted_chat_is_let_go(desk: Desk, wait: Wait, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def gone(message_id: int, *_args: object, **_named: object) -> Message:
        tries.append(message_id)
        raise MissingError("This message is no longer in the history.")

    monkeypatch.setattr(desk.history.messages, "finish_answer", gone)
    desk.finish("all of it")
    wait(lambda: desk.outcomes)
    assert isinstance(desk.outcomes[0].error, MissingError)
    desk.close()
    assert len(tries) == 1


def test_the_dearer_a_save_the_rarer(desk: Desk, wait: Wait, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[float] = []
    cost = 0.001

    def slow(_message_id: int, _answer: Answer) -> None:
        saved.append(desk.clock[0])
        desk.clock[0] += cost

    monkeypatch.setattr(desk.history.messages, "save_answer", slow)

    def run(seconds: float) -> int:
        saved.clear()
        end = desk.clock[0] + seconds
        while desk.clock[0] < end:
            desk.clock[0] += 0.25
            desk.writer.progress(desk.answer, Answer)
            # The thread gets its turn, if there is something to save.
            threading.Event().wait(0.003)
        return len(saved)

    assert 2 / SAVE_S <= run(4) <= 4 / SAVE_S
    cost = 0.1
    run(1)
    assert run(20) <= 20 / (SHARE * cost) + 1
