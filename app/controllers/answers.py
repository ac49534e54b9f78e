"""Runs answers one after another and keeps each in its chat's history, whichever chat is in sight."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import QObject, QTimer, Signal

from app.bridge import Stamped
from app.controllers.answer import LiveAnswer
from app.crash import report
from app.engine_host import EngineHost, GenerateRequest
from app.store.errors import StoreError
from app.store.history import History
from app.store.records import Message
from engine.worker import Job, Stopped

SAVE_S = 0.5
"""Seconds between two saves of a streaming answer."""
RETRY_MS = 1000


@dataclass(slots=True)
class Running:
    """An answer that waits for its turn or is being generated."""

    live: LiveAnswer
    job: Job
    started: bool = False
    saved_at: float = 0.0

    @property
    def message(self) -> Message:
        return self.live.message


class AnswerQueue(QObject):
    """Signals:
    started(Running): its first event came.
    streamed(Running, pieces, events): more of it.
    finished(Running): it is in the history.
    changed: another number of answers is running or waiting.
    trouble(StoreError): a save failed; it is tried again.
    """

    started = Signal(object)
    streamed = Signal(object, object, object)
    finished = Signal(object)
    changed = Signal()
    trouble = Signal(object)

    def __init__(self, host: EngineHost, history: History, *, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._host = host
        self._history = history
        self._now = now
        self._running: dict[int, Running] = {}
        self._unsaved: dict[int, Running] = {}
        self._reports: dict[int, str] = {}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="inkstand-history")
        self._writes: dict[int, Future[None]] = {}
        self._retry = QTimer(self)
        self._retry.setInterval(RETRY_MS)
        self._retry.timeout.connect(self._save_again)

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
            running.saved_at = self._now()
            self.started.emit(running)
        pieces, state = running.live.take(events)
        self.streamed.emit(running, pieces, events)
        if state is not None:
            del self._running[message_id]
            self._finish(running)
            self.changed.emit()
        elif self._now() - running.saved_at >= SAVE_S:
            self._save(running)

    def _save(self, running: Running) -> None:
        """On a thread of its own: a lock that another program holds must not stop the window."""
        previous = self._writes.get(running.message.id)
        if previous is not None and not previous.done():
            return
        running.saved_at = self._now()
        answer, message_id, history = running.live.answer(), running.message.id, self._history
        self._writes[message_id] = self._writer.submit(history.messages.save_answer, message_id, answer)

    def _finish(self, running: Running) -> None:
        message = running.message
        pending = self._writes.pop(message.id, None)
        if pending is not None:
            # A late save must not overwrite the final state.
            wait([pending])
        if running.live.error is not None:
            self._reports[message.id] = report(running.live.error)
        assert message.state != "streaming"
        state: Literal["done", "stopped", "failed"] = message.state
        try:
            stored = self._history.messages.finish_answer(
                message.id, running.live.answer(), state=state, error=message.error
            )
        except StoreError as error:
            self._unsaved[message.id] = running
            self._retry.start()
            self.trouble.emit(error)
        else:
            self._unsaved.pop(message.id, None)
            running.live.message = stored
        self.finished.emit(running)

    def _save_again(self) -> None:
        for message_id, running in list(self._unsaved.items()):
            message = running.message
            state: Literal["done", "stopped", "failed"] = "done" if message.state == "streaming" else message.state
            try:
                self._history.messages.finish_answer(
                    message_id, running.live.answer(), state=state, error=message.error
                )
            except StoreError:
                return
            del self._unsaved[message_id]
        self._retry.stop()

    def close(self) -> None:
        """After the engine's thread has ended and its last events were delivered: save what is left."""
        for running in list(self._running.values()):
            self._take(running.message.id, [(self._now(), Stopped())])
        self._save_again()
        self._retry.stop()
        self._writer.shutdown(wait=True)
