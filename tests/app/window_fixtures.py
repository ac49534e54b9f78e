"""Offscreen Qt, a window around a scripted model, and what waits for it."""

from __future__ import annotations

import os

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QApplication

from app.composition import Gui, application, build, start
from app.engine_host import LoadRequest, ModelLoader
from app.scripted import Said, Script, scripted_loader
from app.settings import Sampling, Settings
from app.settings_file import SettingsFile
from app.theme import Theme
from engine.paths import user_paths

ANSWER = (
    "## Tide pools\n\nSmall pools hold the sky,\nstarfish rest on *silent* stones.\n\n"
    "1. one\n2. two\n\n```python\nprint(1)\n```\n\nThe end."
)
THOUGHT = "They ask for a haiku."


@pytest.fixture(scope="session")
def qapp_cls() -> type[QApplication]:
    return QApplication


@pytest.fixture(scope="session")
def qapp() -> QApplication:
    """One application for the session, made as the program makes it."""
    return application([])


@pytest.fixture(scope="module", autouse=True)
def no_cycle_left() -> Iterator[None]:
    """What the windows of a module left in cycles goes at its end, on this thread: tests of the hub start others, and
    timers that one of those collects are not stopped, which ends the process sooner or later."""
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def no_widget_left() -> Iterator[None]:
    """Qt deletes the windows of a test at its end; left to Python's collector, they would go in any order, any time,
    and on any thread, as `app.collector` tells."""
    collecting = gc.isenabled()
    gc.disable()
    yield
    running = QApplication.instance()
    if isinstance(running, QApplication):
        for widget in running.topLevelWidgets():
            widget.close()
            widget.deleteLater()
        running.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
    gc.collect(1)
    if collecting:
        gc.enable()


@pytest.fixture
def theme(qapp: QApplication) -> Theme:
    return Theme("light")


@pytest.fixture
def script() -> Script:
    return Script(lambda _messages: Said(ANSWER, THOUGHT))


Wait = Callable[..., None]


@pytest.fixture
def wait(qapp: QApplication) -> Wait:
    """Turns the event loop until something holds, or fails."""

    def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it did not happen in time"
            qapp.processEvents()
            time.sleep(0.001)
        qapp.processEvents()

    return until


class Opened:
    """Windows of one test, closed at its end."""

    def __init__(self, wait: Wait, qapp: QApplication) -> None:
        self._wait = wait
        self._qapp = qapp
        self._open: list[Gui] = []

    def __call__(self, loader: ModelLoader, *, greedy: bool = True, loaded: bool = True) -> Gui:
        """A window whose model is loaded; the history is that of the test's home."""
        paths = user_paths()
        file = SettingsFile(paths.config / "settings.json")
        if greedy and not file.path.exists():
            file.save(Settings(sampling=Sampling(temperature=0.0), theme="light"))
        notices: list[str] = []
        gui = build(paths, loader, notices=notices)
        self._open.append(gui)
        start(gui, LoadRequest(Path("demo"), "Inkstand Demo"), notices)
        if loaded:
            self._wait(lambda: gui.services.host.facts is not None)
        return gui

    def close(self, gui: Gui) -> float:
        """Quit as the program does. Returns the seconds it took."""
        began = time.monotonic()
        gui.window.request_quit()
        asyncio.run(gui.shutdown())
        self._open.remove(gui)
        gui.window.deleteLater()
        # Outside of exec() nobody deletes what is to be deleted later.
        self._qapp.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
        self._qapp.processEvents()
        return time.monotonic() - began


@pytest.fixture
def opened(wait: Wait, qapp: QApplication, inkstand_home: Path) -> Iterator[Opened]:
    del inkstand_home
    maker = Opened(wait, qapp)
    yield maker
    for gui in list(maker._open):
        maker.close(gui)


@pytest.fixture
def gui(opened: Opened, script: Script) -> Gui:
    """A window around the scripted model."""
    return opened(scripted_loader(script))
