"""Puts answers into the history on a thread of its own: neither a locked file nor a long answer stops the window."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import QTimer

from app.background import Outcome
from app.bridge import Bridge, Stamped
from app.store.errors import MissingError, ReadOnlyError, StoreError
from app.store.history import History
from app.store.records import Answer, Message

SAVE_S = 0.5
"""Seconds between two saves of a streaming answer, at least."""
SHARE = 50
"""A save is followed by a pause of so many times what it took: all of the answer is written again each time."""
RETRY_MS = 1000


@dataclass(frozen=True, slots=True)
class Ending:
    """An answer that will not grow any more, as it is to be stored."""

    message_id: int
    answer: Answer
    state: Literal["done", "stopped", "failed"]
    error: str | None


class AnswerWriter:
    """Saves one after another in the order in which they were handed over, so that the state of a streaming answer
    never overwrites its end. The methods belong to the window's thread and do not wait, except `close`.

    Args:
        now: seconds of a monotonic clock.
    """

    def __init__(self, history: History, bridge: Bridge, *, now: Callable[[], float] = time.monotonic) -> None:
        self._history = history
        self._bridge = bridge
        self._now = now
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="inkstand-history")
        self._progress: Future[float] | None = None
        self._saved_at = 0.0
        self._endings: dict[int, Ending] = {}
        """What is not stored yet; the pool's thread takes out what it has stored."""
        self._retry = QTimer()
        self._retry.setSingleShot(True)
        self._retry.setInterval(RETRY_MS)
        self._retry.timeout.connect(self._try_again)

    def progress(self, message_id: int, answer: Callable[[], Answer]) -> None:
        """Store how far an answer has come if it is time to; a save that fails is made good by the next."""
        if self._now() - self._saved_at < self._pause():
            return
        self._saved_at, snapshot = self._now(), answer()

        def work() -> float:
            began = self._now()
            self._history.messages.save_answer(message_id, snapshot)
            return self._now() - began

        self._progress = self._pool.submit(work)

    def _pause(self) -> float:
        last = self._progress
        if last is None or (last.done() and last.exception() is not None):
            return SAVE_S
        return max(SAVE_S, SHARE * last.result()) if last.done() else float("inf")

    def finish(self, ending: Ending, done: Callable[[Outcome[Message]], object]) -> None:
        """Store the end of an answer.

        Args:
            done: called in the window's thread with the stored message or what was in the way. What can pass, like
                a lock of another program, is tried again until it works.
        """
        self._endings[ending.message_id] = ending

        def deliver(events: Sequence[Stamped]) -> None:
            for _, outcome in events:
                if isinstance(outcome.error, StoreError):
                    self._retry.start()
                done(outcome)

        def work() -> None:
            outcome: Outcome[Message]
            try:
                outcome = Outcome(self._store(ending))
            except BaseException as error:
                outcome = Outcome(error=error)
            self._bridge.post(deliver, outcome)

        self._pool.submit(work)

    def _store(self, ending: Ending) -> Message:
        """On the pool's thread."""
        try:
            stored = self._history.messages.finish_answer(
                ending.message_id, ending.answer, state=ending.state, error=ending.error
            )
        except (MissingError, ReadOnlyError):
            # These do not pass.
            self._endings.pop(ending.message_id, None)
            raise
        self._endings.pop(ending.message_id, None)
        return stored

    def _try_again(self) -> None:
        waiting = list(self._endings.values())

        def deliver(_events: Sequence[Stamped]) -> None:
            if self._endings:
                self._retry.start()

        def work() -> None:
            # The first that fails tells that the others would, too.
            with suppress(StoreError):
                for ending in waiting:
                    self._store(ending)
            self._bridge.post(deliver, None)

        self._pool.submit(work)

    def later(self, work: Callable[[], object]) -> None:
        """Do something else with the history, after the saves before it. Its failures are its own."""
        self._pool.submit(work)

    def close(self) -> None:
        """Wait until everything is stored; what failed is tried once more."""
        self._retry.stop()
        self._pool.shutdown(wait=True)
        with suppress(StoreError):
            for ending in list(self._endings.values()):
                self._store(ending)
