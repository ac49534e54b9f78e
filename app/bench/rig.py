"""The window as the program opens it, on the program's event loop, with instruments attached."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import TracebackType
from typing import cast

from PySide6.QtCore import QEvent, QObject, Qt, QTimer
from PySide6.QtWidgets import QApplication

from app.composition import Gui, application, build, open_models, start
from app.engine_host import LoadRequest, ModelLoader
from app.event_loop import event_loop
from app.store.history import History
from engine.paths import user_paths

FRAME_MS = 16
"""Period of the heartbeat: a frame of a display at 60 Hz."""
PATIENCE_S = 60.0
Scene = Callable[[Gui], Awaitable[None]]


class FrameGaps(QObject):
    """Milliseconds between turns of the window's event loop: how long it could neither paint nor hear a key.

    A timer asks for a turn with each frame of a 60 Hz display, so an idle window shows gaps of 16 ms, and one frame
    that was missed shows as 32.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gaps: list[float] = []
        self.computed: list[float] = []
        """Of each gap, what the window's thread spent computing."""
        self._last = self._last_cpu = 0.0
        self._timer = QTimer(self)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(FRAME_MS)
        self._timer.timeout.connect(self._tick)

    @property
    def waited(self) -> list[float]:
        """Of each gap, what the window's thread was late beyond what it computed and the frame it sleeps: it waited
        for the interpreter, a disk, or for a processor that another program had."""
        return [max(0.0, gap - spent - FRAME_MS) for gap, spent in zip(self.gaps, self.computed, strict=True)]

    def start(self) -> None:
        self._last, self._last_cpu = time.perf_counter(), time.thread_time()
        self._timer.start()

    def stop(self) -> None:
        self._timer.stop()
        self._tick()

    def _tick(self) -> None:
        now, cpu = time.perf_counter(), time.thread_time()
        self.gaps.append(1e3 * (now - self._last))
        self.computed.append(1e3 * (cpu - self._last_cpu))
        self._last, self._last_cpu = now, cpu


class PaintWatch(QObject):
    """Calls `painted` once the next paint of `target` is complete, all widgets of its window included."""

    def __init__(self, target: Callable[[QObject], bool], painted: Callable[[], None]) -> None:
        super().__init__()
        self._target, self._painted, self._seen = target, painted, False

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if not self._seen and event.type() == QEvent.Type.Paint and self._target(watched):
            self._seen = True
            # The widgets of a window are painted in one go, before the loop turns again.
            QTimer.singleShot(0, self, self._painted)
        return False


async def until(condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Let the event loop turn until something holds. Raises TimeoutError."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the window did not get where it is measured")
        await asyncio.sleep(0.02)


async def settled(gui: Gui, seconds: float = PATIENCE_S) -> None:
    """Wait until no answer is on its way, without asking again and again. Raises TimeoutError."""
    queue, changed = gui.services.queue, asyncio.Event()
    queue.changed.connect(changed.set)
    try:
        async with asyncio.timeout(seconds):
            while queue.busy:
                changed.clear()
                await changed.wait()
    finally:
        queue.changed.disconnect(changed.set)


def perform(
    scene: Scene, loader: ModelLoader, request: LoadRequest, prepare: Callable[[History], object] | None = None
) -> None:
    """Open the window around a model, play a scene once the model is loaded, and quit.

    Answers are greedy. The home that INKSTAND_HOME names takes everything that is written.

    Args:
        prepare: fills the history before the window is shown.

    Raises:
        RuntimeError: something failed in the window meanwhile; the figures would be those of a broken program.
    """
    failures: list[BaseException] = []

    def failed(_kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
        failures.append(error)

    before, sys.excepthook = sys.excepthook, failed
    try:
        _perform(scene, loader, request, prepare)
    finally:
        sys.excepthook = before
    if failures:
        raise RuntimeError(f"{len(failures)} errors in the window, the first: {failures[0]!r}") from failures[0]


def _perform(
    scene: Scene, loader: ModelLoader, request: LoadRequest, prepare: Callable[[History], object] | None
) -> None:
    qt = application([])
    with event_loop(qt) as loop:
        asyncio.set_event_loop(loop)
        gui = build(user_paths(), loader)
        s = gui.services
        s.preferences.update(sampling=replace(s.preferences.value.sampling, temperature=0.0), theme="light")
        if prepare is not None:
            prepare(s.history)

        async def main() -> None:
            start(gui, request, [])
            await asyncio.gather(open_models(gui), until(lambda: s.host.facts is not None))
            await asyncio.sleep(0.5)
            try:
                await scene(gui)
            finally:
                await gui.shutdown()

        cast("object", loop.run_until_complete(main()))
    gui.window.deleteLater()
    qt.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)


def widget_count() -> int:
    return len(QApplication.allWidgets())
