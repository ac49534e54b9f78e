"""Runs answers one after another and keeps each in its chat's history, whichever chat is in sight."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import QObject, Signal

from app.background import Outcome
from app.bridge import Bridge, Stamped
from app.controllers.answer import LiveAnswer
from app.controllers.saving import AnswerWriter, Ending
from app.crash import report
from app.engine_host import EngineHost, GenerateRequest
from app.store.errors import StoreError
from app.store.history import History
from app.store.records import Message
from engine.worker import Job, Stopped


@dataclass(slots=True)
class Running:
    """An answer that waits for its turn, is being generated, or has ended and is being stored."""

    live: LiveAnswer
    job: Job
    started: bool = False

    @property
    def message(self) -> Message:
        return self.live.message


class AnswerQueue(QObject):
    """Signals:
    started(Running): its first event came.
    streamed(Running, pieces, events): more of it.
    finished(Running): it is in the history, or `trouble` told why not.
    changed: another number of answers is running or waiting.
    trouble(StoreError): a save failed; it is tried again.
    """

    started = Signal(object)
    streamed = Signal(object, object, object)
    finished = Signal(object)
    changed = Signal()
    trouble = Signal(object)

    def __init__(self, host: EngineHost, history: History, bridge: Bridge) -> None:
        super().__init__()
        self._host = host
        self._running: dict[int, Running] = {}
        self._reports: dict[int, str] = {}
        self._writer = AnswerWriter(history, bridge)
        self.later = self._writer.later
        """Runs work on the thread of the saves."""

    def submit(self, message: Message, request: GenerateRequest) -> Running:
        """Queue the answer that `message` (state "streaming") is to hold."""
        live = LiveAnswer(message)
        job = self._host.generate(request, lambda events: self._take(message.id, events))
        running = Running(live, job)
        self._running[message.id] = running
        self.changed.emit()
        return running

    def get(self, message_id: int) -> Running | None:
        return self._running.get(message_id)

    def of_chat(self, chat_id: int) -> Running | None:
        """The answer that is running or waiting in a chat."""
        return next((r for r in self._running.values() if r.message.chat_id == chat_id), None)

    @property
    def busy(self) -> bool:
        return bool(self._running)

    @property
    def chats(self) -> frozenset[int]:
        """Chats with an answer on its way."""
        return frozenset(r.message.chat_id for r in self._running.values())

    def report(self, message_id: int) -> str:
        """The bug report of an answer that failed since the program started."""
        return self._reports.get(message_id, "The report was not kept: the program was started again since.")

    def stop(self, message_id: int) -> None:
        running = self._running.get(message_id)
        if running is not None:
            running.job.cancel()

    def stop_all(self) -> None:
        for running in self._running.values():
            running.job.cancel()

    # -- events -------------------------------------------------------------------------------

    def _take(self, message_id: int, events: Sequence[Stamped]) -> None:
        running = self._running.get(message_id)
        if running is None:
            return
        if not running.started:
            running.started = True
            self.started.emit(running)
        pieces, state = running.live.take(events)
        self.streamed.emit(running, pieces, events)
        if state is None:
            self._writer.progress(message_id, running.live.answer)
        elif state != "streaming":
            self._finish(running, state)

    def _finish(self, running: Running, state: Literal["done", "stopped", "failed"]) -> None:
        message = running.message
        if running.live.error is not None:
            self._reports[message.id] = report(running.live.error)
        ending = Ending(message.id, running.live.answer(), state, message.error)
        self._writer.finish(ending, lambda outcome: self._stored(running, outcome))

    def _stored(self, running: Running, outcome: Outcome[Message]) -> None:
        del self._running[running.message.id]
        if isinstance(outcome.error, StoreError):
            self.trouble.emit(outcome.error)
        elif outcome.error is None:
            running.live.message = outcome.get()
        self.finished.emit(running)
        self.changed.emit()
        if outcome.error is not None and not isinstance(outcome.error, StoreError):
            raise outcome.error

    def close(self) -> None:
        """After the engine's thread has ended and its last events were delivered: save what is left."""
        for running in list(self._running.values()):
            if running.message.state == "streaming":
                self._take(running.message.id, [(time.monotonic(), Stopped())])
        self._writer.close()
