from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from itertools import pairwise

import pytest

from app.bridge import FRAME_S, Bridge, Stamped
from app.crash import BUG, CrashHandler, blame, report
from engine.errors import UserError


class Sink:
    def __init__(self) -> None:
        self.batches: list[list[object]] = []
        self.threads: set[int] = set()

    def take(self, events: Sequence[Stamped]) -> None:
        self.batches.append([event for _, event in events])
        self.threads.add(threading.get_ident())


def from_thread(work: object) -> None:
    thread = threading.Thread(target=work)  # pyright: ignore[reportArgumentType]
    thread.start()
    thread.join()


def test_events_arrive_together_in_order_in_the_window_thread(qapp, wait) -> None:
    bridge, one, two = Bridge(), Sink(), Sink()

    def post() -> None:
        for i in range(1000):
            bridge.post(one.take, i)
            if i % 10 == 0:
                bridge.post(two.take, i)

    from_thread(post)
    assert one.batches == []
    wait(lambda: one.batches)
    assert one.batches == [list(range(1000))]
    assert two.batches == [list(range(0, 1000, 10))]
    assert one.threads == {threading.get_ident()}
    bridge.post(one.take, "next")
    wait(lambda: len(one.batches) == 2)


def test_a_fast_source_is_heard_once_a_frame_and_a_pause_costs_no_time(qapp, wait) -> None:
    bridge, sink = Bridge(), Sink()
    arrived: list[float] = []

    def take(events: Sequence[Stamped]) -> None:
        arrived.append(time.monotonic())
        sink.take(events)

    def source() -> None:
        for i in range(60):
            bridge.post(take, i)
            time.sleep(0.002)

    thread = threading.Thread(target=source)
    thread.start()
    wait(lambda: sum(map(len, sink.batches)) == 60)
    thread.join()
    assert [event for batch in sink.batches for event in batch] == list(range(60))
    assert all(later - earlier >= 0.9 * FRAME_S for earlier, later in pairwise(arrived))
    time.sleep(2 * FRAME_S)
    bridge.post(take, "alone")
    qapp.processEvents()
    assert sink.batches[-1] == ["alone"]


def test_one_sinks_bug_does_not_cost_another_its_events(qapp, qtbot) -> None:
    bridge, good = Bridge(), Sink()

    def bad(_events: Sequence[Stamped]) -> None:
        raise KeyError("bug")

    bridge.post(bad, 1)
    bridge.post(good.take, 2)
    with pytest.raises(KeyError):
        bridge.close()
    assert good.batches == [[2]]


def test_closing_delivers_what_waits_and_nothing_after(qapp) -> None:
    bridge, sink = Bridge(), Sink()
    bridge.post(sink.take, 1)
    bridge.close()
    bridge.post(sink.take, 2)
    qapp.processEvents()
    assert sink.batches == [[1]]


def test_a_bug_is_shown_once_with_its_traceback() -> None:
    shown: list[str] = []
    handler = CrashHandler(lambda _error, text: shown.append(text))
    for _ in range(3):
        try:
            raise ValueError("broken part")
        except ValueError as error:
            handler.handle(error)
    assert len(shown) == 1
    assert "broken part" in shown[0]
    assert "test_bridge.py" in shown[0]
    assert "PySide6" in shown[0]


def test_bugs_in_threads_reach_the_handler() -> None:
    shown: list[str] = []
    handler = CrashHandler(lambda _error, text: shown.append(text))
    handler.install()
    try:

        def fail() -> None:
            raise RuntimeError("in a thread")

        from_thread(fail)
    finally:
        handler.uninstall()
    assert "in a thread" in shown[0]


def test_blame_tells_the_users_mistakes_from_bugs() -> None:
    assert blame(UserError("Title.", "Hint.")) == ("Title.", "Hint.", False)
    title, _, bug = blame(KeyError("x"))
    assert (title, bug) == (BUG, True)
    assert "KeyError" in report(KeyError("x"))
