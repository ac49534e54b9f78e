from __future__ import annotations

import gc
import threading
import weakref

from app.collector import Collector


class Node:
    def __init__(self) -> None:
        self.me = self


def test_cycles_are_collected_on_the_threads_own_turn_only(qapp: object, wait) -> None:
    gc.enable()  # the window's tests run with it off
    collector = Collector()
    collector.start()
    try:
        assert not gc.isenabled()
        where: list[int] = []

        def make() -> None:
            weakref.finalize(Node(), lambda: where.append(threading.get_ident()))
            # Enough to make an automatic collection due on this thread.
            keep = [[] for _ in range(20_000)]
            del keep

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        assert not where
        junk = [[] for _ in range(5_000)]
        wait(lambda: where)
        assert where == [threading.get_ident()]
        del junk
    finally:
        collector.stop()
    assert gc.isenabled()
    gc.disable()


def test_what_exists_when_the_program_is_up_is_left_alone(qapp: object) -> None:
    collector = Collector()
    collector.start()
    try:
        frozen = gc.get_freeze_count()
        collector.settle()
        assert gc.get_freeze_count() > frozen + 1000
        assert len(gc.get_objects()) < 1000
    finally:
        collector.stop()
    assert gc.get_freeze_count() == 0
