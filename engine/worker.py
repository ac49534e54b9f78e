"""The one thread that owns MLX.

Streams of MLX belong to a thread, and a lazy array made in one fails in another. Everything that touches arrays is
therefore submitted here as a job; only events and plain values come back. State that holds arrays (an `Engine`, a
`Session`) is made inside a job, kept by the closure that made it, and only ever used by other jobs.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from engine.events import TERMINAL, Cancelled, Failed, Finished

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Done:
    """Last event of a job that is not a generation; `value` is what it returned (nothing of MLX)."""

    value: object


@dataclass(frozen=True, slots=True)
class Stopped:
    """Last event of a job that was cancelled before it could report anything of its own."""


Terminal = Finished | Cancelled | Failed | Done | Stopped
_TERMINAL = (*TERMINAL, Done, Stopped)


class JobCancelled(Exception):  # noqa: N818 (control flow, not an error)
    """Raised inside a job by `Job.emit` and `Job.stream` once it is cancelled; ends it with `Stopped`."""


class Job:
    """One piece of work in the worker's queue.

    `cancel` and `wait` may be called from any thread, `emit` and `stream` only from the work itself.
    """

    def __init__(self, work: Callable[[Job], object], deliver: Callable[[Any], None], grace: float) -> None:
        self._work = work
        self._deliver = deliver
        self._grace = grace
        self._ended = threading.Event()
        self.cancelled = threading.Event()
        """Set by `cancel`. Long work checks it; `Session.generate` takes it as its `cancel`."""

    def cancel(self) -> None:
        """Asks the job to end. Returns at once; a terminal event still follows."""
        self.cancelled.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks until the terminal event was delivered; False when `timeout` seconds passed first."""
        return self._ended.wait(timeout)

    def emit(self, event: object) -> None:
        """Delivers an event. Raises `JobCancelled` instead once the job is cancelled."""
        if self.cancelled.is_set():
            raise JobCancelled
        self._deliver(event)

    def stream(self, events: Iterable[object]) -> Terminal | None:
        """Delivers events up to the terminal one, which is returned and left to the worker to deliver.

        A cancelled source reports its own end, so that a `Cancelled` can hold the partial answer. One that is still
        producing `grace` seconds after the first event that followed the cancellation is closed, and `JobCancelled`
        is raised. (Not after the cancellation itself: the forward that is under way may take longer than that.)
        """
        deadline: float | None = None
        try:
            for event in events:
                if isinstance(event, _TERMINAL):
                    return event
                if self.cancelled.is_set():
                    now = time.monotonic()
                    deadline = deadline or now + self._grace
                    if now >= deadline:
                        raise JobCancelled
                self._deliver(event)
            return None
        finally:
            close = getattr(events, "close", None)
            if close is not None:
                close()

    def run(self) -> None:
        """Does the work on the calling thread and delivers its terminal event. Called by the worker only."""
        terminal = self._outcome()
        try:
            self._deliver(terminal)
        except Exception:
            _log.exception("The receiver of a job's last event failed")
        finally:
            self._ended.set()

    def _outcome(self) -> Terminal:
        if self.cancelled.is_set():
            return Stopped()
        try:
            value = self._work(self)
        except JobCancelled:
            return Stopped()
        except BaseException as error:
            return Failed(error)
        return value if isinstance(value, _TERMINAL) else Done(value)


class EngineWorker:
    """Runs jobs one after another on a thread of its own.

    Args:
        grace: seconds that a cancelled event source may go on producing, see `Job.stream`.
    """

    def __init__(self, *, grace: float = 1.0) -> None:
        self._grace = grace
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._pending: list[Job] = []
        self._closed = False
        # A daemon: a job that ignores its cancellation must not keep the program from ending.
        self._thread = threading.Thread(target=self._loop, name="inkstand-engine", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Job], object], deliver: Callable[[Any], None]) -> Job:
        """Queues work.

        Args:
            work: called with its job on the worker's thread. What it returns arrives as `Done(value)`, a terminal
                event (as `Job.stream` returns it) as itself, an exception as `Failed`.
            deliver: called on the worker's thread with each event; exactly one terminal event comes last. It must
                return quickly. An exception from it fails the job.

        Raises:
            RuntimeError: the worker is closed.
        """
        job = Job(work, deliver, self._grace)
        with self._lock:
            if self._closed:
                raise RuntimeError("the engine worker is closed")
            self._pending.append(job)
            self._jobs.put(job)
        return job

    def close(self, timeout: float = 5.0) -> bool:
        """Cancels everything and ends the thread.

        Returns:
            False when the running job has not ended within `timeout` seconds; it is left behind, and its terminal
            event may still come.
        """
        with self._lock:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
            for job in self._pending:
                job.cancel()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _loop(self) -> None:
        while self._run_next():
            pass

    def _run_next(self) -> bool:
        # A function of its own, so that no local keeps the last job, and with it a model, alive while idle.
        job = self._jobs.get()
        if job is None:
            return False
        job.run()
        with self._lock:
            self._pending.remove(job)
        return True
