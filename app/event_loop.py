"""Qt's event loop for coroutines, with what qasync leaves out."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import qasync  # pyright: ignore[reportMissingTypeStubs]
from PySide6.QtWidgets import QApplication

THREADS = 8
SWITCH_S = 0.001
"""How long a thread that computes in Python may keep the interpreter while another wants it. A paint takes it dozens
of times; at Python's own 5 ms, an engine that reads a long prompt would hold each of them up."""


@contextmanager
def event_loop(application: QApplication) -> Generator[qasync.QEventLoop]:
    """A loop for one run of the program; closed at the end.

    Blocking calls go to threads of Python's own. Generators that a cancelled download leaves behind are closed in the
    loop, as asyncio's own loops do; otherwise their connections would be torn off by the garbage collector.
    """
    loop = qasync.QEventLoop(application)
    loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="inkstand-io"))

    def finalize(generator: AsyncGenerator[Any, Any]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(loop.create_task, generator.aclose())

    before, interval = sys.get_asyncgen_hooks(), sys.getswitchinterval()
    sys.set_asyncgen_hooks(finalizer=finalize)
    sys.setswitchinterval(SWITCH_S)
    try:
        with loop:
            yield loop
    finally:
        sys.setswitchinterval(interval)
        sys.set_asyncgen_hooks(*before)
