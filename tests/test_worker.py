"""The worker thread: order, cancellation, failures and shutdown, with fakes in place of a model."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from engine.errors import PromptError
from engine.events import Cancelled, DraftStatus, Failed, Finished, Generation, Notice
from engine.messages import Message
from engine.stats import StatsRecorder
from engine.worker import Done, EngineWorker, Job, Stopped

BOUND = 5.0


def generation(text: str, reason: str = "stop") -> Generation:
    return Generation(
        text=text,
        reasoning="",
        token_ids=(),
        tool_calls=(),
        finish_reason=reason,  # type: ignore[arg-type]
        stats=StatsRecorder(prompt_tokens=1, cached_tokens=0, started=0.0).snapshot(),
        draft=DraftStatus("auto", "none", None, None, None),
        message=Message("assistant", text),
    )


class Receiver:
    """Collects events and the threads that delivered them."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.threads: set[int] = set()
        self.first = threading.Event()

    def __call__(self, event: object) -> None:
        self.events.append(event)
        self.threads.add(threading.get_ident())
        self.first.set()


@pytest.fixture
def worker() -> Iterator[EngineWorker]:
    worker = EngineWorker(grace=0.05)
    yield worker
    assert worker.close(BOUND)


def obedient(cancel: threading.Event) -> Iterator[object]:
    """Like a session: ends by itself with what it had when cancelled."""
    count = 0
    while not cancel.is_set():
        count += 1
        yield Notice(str(count))
        time.sleep(0.001)
    yield Notice("the round under way")
    yield Cancelled(generation("partial", "cancelled"))


def test_events_arrive_in_order_from_one_thread_and_the_terminal_once(worker: EngineWorker) -> None:
    receivers = [Receiver(), Receiver()]
    jobs = [
        worker.submit(lambda job: job.stream(iter([Notice("a"), Notice("b"), Finished(generation("ab"))])), receiver)
        for receiver in receivers
    ]
    assert all(job.wait(BOUND) for job in jobs)
    for receiver in receivers:
        assert receiver.events == [Notice("a"), Notice("b"), Finished(generation("ab"))]
    assert receivers[0].threads == receivers[1].threads
    assert threading.get_ident() not in receivers[0].threads


def test_a_plain_callable_reports_progress_and_its_value(worker: EngineWorker) -> None:
    receiver = Receiver()

    def load(job: Job) -> str:
        job.emit(Notice("half"))
        return "loaded"

    assert worker.submit(load, receiver).wait(BOUND)
    assert receiver.events == [Notice("half"), Done("loaded")]


def test_cancelling_a_generation_keeps_its_partial_answer(worker: EngineWorker) -> None:
    receiver = Receiver()
    job = worker.submit(lambda job: job.stream(obedient(job.cancelled)), receiver)
    assert receiver.first.wait(BOUND)
    job.cancel()
    assert job.wait(BOUND)
    assert receiver.events[-2:] == [
        Notice("the round under way"),
        Cancelled(generation("partial", "cancelled")),
    ]


def test_a_source_that_ignores_its_cancellation_is_closed(worker: EngineWorker) -> None:
    receiver = Receiver()
    closed = threading.Event()

    def stubborn() -> Iterator[object]:
        try:
            while True:
                yield Notice("on and on")
                time.sleep(0.001)
        finally:
            closed.set()

    job = worker.submit(lambda job: job.stream(stubborn()), receiver)
    assert receiver.first.wait(BOUND)
    job.cancel()
    assert job.wait(BOUND)
    assert receiver.events[-1] == Stopped()
    assert closed.is_set()


def test_a_slow_round_under_way_at_the_cancellation_does_not_lose_the_answer(worker: EngineWorker) -> None:
    receiver = Receiver()

    def slow(job: Job) -> Iterator[object]:
        yield Notice("first")
        assert job.cancelled.wait(BOUND)
        time.sleep(0.2)
        yield Notice("much later than the grace")
        yield Cancelled(generation("kept", "cancelled"))

    job = worker.submit(lambda job: job.stream(slow(job)), receiver)
    assert receiver.first.wait(BOUND)
    job.cancel()
    assert job.wait(BOUND)
    assert receiver.events[-1] == Cancelled(generation("kept", "cancelled"))


def test_reporting_progress_ends_a_cancelled_job_at_once(worker: EngineWorker) -> None:
    receiver = Receiver()
    steps = 0

    def load(job: Job) -> None:
        nonlocal steps
        job.emit(Notice("shard 1"))
        assert job.cancelled.wait(BOUND)
        steps += 1
        job.emit(Notice("shard 2"))
        steps += 1

    job = worker.submit(load, receiver)
    assert receiver.first.wait(BOUND)
    job.cancel()
    assert job.wait(BOUND)
    assert receiver.events == [Notice("shard 1"), Stopped()]
    assert steps == 1


def test_a_job_cancelled_in_the_queue_never_runs(worker: EngineWorker) -> None:
    gate = threading.Event()
    ran: list[str] = []
    blocker = worker.submit(lambda _job: gate.wait(BOUND), Receiver())
    receiver = Receiver()
    job = worker.submit(lambda _job: ran.append("ran"), receiver)
    job.cancel()
    gate.set()
    assert blocker.wait(BOUND)
    assert job.wait(BOUND)
    assert receiver.events == [Stopped()]
    assert ran == []


@pytest.mark.parametrize("error", [PromptError("too long"), ZeroDivisionError("bug"), SystemExit(3)])
def test_an_exception_becomes_failed_and_the_worker_goes_on(worker: EngineWorker, error: BaseException) -> None:
    receiver = Receiver()

    def fail(_job: Job) -> None:
        raise error

    assert worker.submit(fail, receiver).wait(BOUND)
    assert receiver.events == [Failed(error)]
    assert worker.submit(lambda _job: 7, receiver).wait(BOUND)
    assert receiver.events[-1] == Done(7)


def test_an_exception_inside_a_stream_comes_after_what_was_produced(worker: EngineWorker) -> None:
    receiver = Receiver()
    error = ValueError("row 3")

    def breaks() -> Iterator[object]:
        yield Notice("one")
        raise error

    assert worker.submit(lambda job: job.stream(breaks()), receiver).wait(BOUND)
    assert receiver.events == [Notice("one"), Failed(error)]


def test_a_receiver_that_raises_does_not_stop_the_worker(
    worker: EngineWorker, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_event: object) -> None:
        raise RuntimeError("window is gone")

    with caplog.at_level(logging.ERROR):
        assert worker.submit(lambda job: job.emit(Notice("x")), broken).wait(BOUND)
    assert "last event failed" in caplog.text
    receiver = Receiver()
    assert worker.submit(lambda _job: 1, receiver).wait(BOUND)
    assert receiver.events == [Done(1)]


def test_closing_cancels_what_runs_and_what_waits() -> None:
    worker = EngineWorker(grace=0.05)
    running, waiting = Receiver(), Receiver()
    worker.submit(lambda job: job.stream(obedient(job.cancelled)), running)
    queued = worker.submit(lambda _job: 1, waiting)
    assert running.first.wait(BOUND)
    assert worker.close(BOUND)
    assert isinstance(running.events[-1], Cancelled)
    assert waiting.events == [Stopped()]
    assert queued.wait(0)
    with pytest.raises(RuntimeError, match="closed"):
        worker.submit(lambda _job: 1, waiting)
    assert worker.close(BOUND)


def test_closing_is_bounded_when_a_job_hangs() -> None:
    worker = EngineWorker()
    gate = threading.Event()
    receiver = Receiver()

    def hang(job: Job) -> None:
        job.emit(Notice("started"))
        gate.wait(BOUND)

    job = worker.submit(hang, receiver)
    assert receiver.first.wait(BOUND)
    start = time.monotonic()
    assert not worker.close(0.05)
    assert time.monotonic() - start < 1
    gate.set()
    assert job.wait(BOUND)
    assert worker.close(BOUND)


def test_an_idle_worker_keeps_nothing_of_the_last_job_alive(worker: EngineWorker) -> None:
    class Model:
        pass

    model = Model()
    ref = weakref.ref(model)
    job = worker.submit(lambda _job, model=model: id(model), Receiver())
    assert job.wait(BOUND)
    del model, job
    deadline = time.monotonic() + BOUND
    while ref() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert ref() is None
