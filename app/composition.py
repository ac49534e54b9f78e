"""The composition root of the window: everything is made here, handed to what needs it, and closed in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, cast

from PySide6.QtCore import QEvent, QTimer
from PySide6.QtWidgets import QMessageBox

from app.background import Background
from app.bridge import Bridge, Stamped
from app.collector import Collector
from app.controllers.answers import AnswerQueue
from app.controllers.chat import ChatController
from app.controllers.chats import ChatsController
from app.controllers.models import ModelsController
from app.controllers.preferences import Preferences
from app.controllers.stats import StatsController
from app.crash import CrashHandler
from app.engine_host import Checkpoint, EngineHost, LoadRequest, ModelLoader
from app.event_loop import event_loop
from app.file_open import Application
from app.hints import sentence_of
from app.hub_access import HubAccess, open_hub
from app.identity import APP_ID
from app.instance import Instance, claim
from app.interrupt import quit_on_interrupt
from app.library_scan import DEMO
from app.motion import system_reduces_motion
from app.power import SleepGuard, inhibitor
from app.settings import Settings
from app.settings_file import SettingsFile
from app.store.history import History
from app.theme import Theme
from app.views.main_window import MainWindow, Services
from app.views.models.manager import ModelManager
from engine.errors import UserError
from engine.paths import UserPaths, demo_checkpoint, user_paths
from engine.worker import EngineWorker

QUIT_S = 3.0
"""Seconds that the engine gets to end what it does when the user quits."""
BUSY_S = 0.5
PLOTS_MS = 50
LIBRARY_S = 3.0
"""Seconds that opening the library waits at most for the first model to be loaded."""
KEEP_DELETED_S = 7 * 86400
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Gui:
    """The window and everything behind it."""

    services: Services
    window: MainWindow
    bridge: Bridge
    background: Background
    crash: CrashHandler
    guard: SleepGuard
    models: ModelsController
    manager: ModelManager
    collector: Collector

    async def shutdown(self) -> bool:
        """Stop and save everything. False when the engine did not end in time and its thread is left behind."""
        s = self.services
        self.window.hide()
        s.queue.stop_all()
        s.host.refuse_loads()
        await self.models.close()
        # A pool of its own: threads of qasync's default executor outlive it in `threading.enumerate`.
        with ThreadPoolExecutor(1) as pool:
            ended = await asyncio.get_running_loop().run_in_executor(pool, s.host.close, QUIT_S)
        self.background.close()
        self.bridge.close()
        s.queue.close()
        s.history.close()
        self.guard.set_active(False)
        self.collector.stop()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        return ended


def build(
    paths: UserPaths,
    loader: ModelLoader,
    *,
    notices: list[str] | None = None,
    hub: Callable[[], HubAccess] | None = None,
) -> Gui:
    """Make the window and what it needs; nothing is shown or loaded yet.

    Args:
        hub: opens library and downloads; the user's own by default.
        notices: takes sentences the user should read once.
    """
    told: list[str] = [] if notices is None else notices
    file = SettingsFile(paths.config / "settings.json")
    loaded = file.load()
    told.extend(loaded.notices)
    preferences = Preferences(file, loaded.settings)
    history = _open_history(paths.data / "history.sqlite3", told)
    theme = Theme(loaded.settings.theme, loaded.settings.font_size)
    bridge = Bridge()
    host = EngineHost(loader, EngineWorker(), bridge)
    host.drafting, host.depth = loaded.settings.draft.enabled, loaded.settings.draft.depth
    queue = AnswerQueue(host, history, bridge)
    chat = ChatController(history, host, queue, preferences.get)
    background = Background(bridge)
    chats = ChatsController(history, lambda: queue.chats, background)
    services = Services(theme, history, preferences, host, queue, chat, chats, StatsController(host.memory))
    window = MainWindow(services)
    guard = SleepGuard(inhibitor())
    models = ModelsController(hub or (lambda: open_hub(paths, preferences.get)), host, preferences, bridge)
    manager = ModelManager(theme, window, models, endpoint=lambda: preferences.value.endpoint)

    def show_reports(events: Sequence[Stamped]) -> None:
        for _, (error, text) in events:
            # A command may have overlooked that the disk can fail it: that is no bug of the reader's to report.
            if isinstance(error, UserError):
                window.show_error(error)
            else:
                window.show_report(text)

    def apply(settings: Settings) -> None:
        theme.set(mode=settings.theme, base=settings.font_size)
        if settings.reduce_motion == "system":
            background.run(system_reduces_motion, lambda found: theme.set(reduce_motion=found.get()))
        else:
            theme.set(reduce_motion=settings.reduce_motion == "on")

    crash = CrashHandler(lambda error, text: bridge.post(show_reports, (error, text)))
    preferences.changed.connect(apply)
    apply(loaded.settings)
    application(()).applicationStateChanged.connect(window.reopen)
    for changed in (queue.changed, models.downloads.changed):
        changed.connect(lambda: guard.set_active(queue.busy or models.downloads.busy))
    collector = Collector()
    collector.start()
    return Gui(services, window, bridge, background, crash, guard, models, manager, collector)


def _open_history(path: Path, notices: list[str]) -> History:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        history = History.open(path, busy_timeout_s=BUSY_S)
    except (UserError, OSError, sqlite3.Error) as error:
        # Whatever somebody did to the file: it is left alone, and the program starts.
        if isinstance(error, UserError):
            why = sentence_of(error)
        else:
            # The text of an OSError has its number and, once more, the path.
            cause = (error.strerror if isinstance(error, OSError) else None) or error
            why = f"The chat history {path} cannot be used ({cause})."
        notices.append(f"{why} Chats of this run are not kept.")
        return History.in_memory()
    notices.extend(history.notices)
    return history


def start(gui: Gui, request: LoadRequest | UserError, notices: Sequence[str]) -> None:
    """Show the window as it was left, then load the model."""
    s, window = gui.services, gui.window
    chat_id = window.restore_state(s.preferences.value.window_state)
    s.chats.refresh()
    told = list(notices)
    try:
        if (cut_off := s.history.chats.cut_off()) is not None:
            chat_id = cut_off.chat_id
        known = chat_id is not None and any(chat.id == chat_id for chat in s.history.chats.list())
        window.chats.open(chat_id) if chat_id is not None and known else window.new_chat()
    except UserError as error:
        told.append(sentence_of(error))
    window.show()
    window.page.composer.editor.setFocus()
    if told:
        window.page.toast.say("  ".join(told), seconds=20)
    if isinstance(request, UserError):
        s.host.failed.emit(request)
        return
    gui.manager.offer(request)
    # After the first paint: importing MLX and opening the files would delay it.
    QTimer.singleShot(0, window, lambda: s.host.load(request))
    QTimer.singleShot(PLOTS_MS, window, window.show_plots)


async def open_models(gui: Gui) -> None:
    """Open the library and go on with downloads, after the first model: importing the hub would slow its load down.

    With that the program is complete.
    """
    host, settled = gui.services.host, asyncio.Event()
    host.changed.connect(lambda: settled.set() if host.loading is None else None)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(settled.wait(), LIBRARY_S)
    try:
        await gui.models.open()
    except UserError as error:
        gui.models.trouble.emit(error)
    gui.collector.settle()


def choose_model(argv: Sequence[str], settings: Settings) -> LoadRequest | UserError:
    """What to load first: `-m DIR`, else what was loaded last if it is still there, else the bundled demo."""
    if argv:
        if len(argv) != 2 or argv[0] not in ("-m", "--model"):
            raise UserError(f"Unknown arguments: {' '.join(argv)}.", "The window takes -m DIR only.")
        directory = Path(argv[1]).expanduser().resolve()
        return LoadRequest(directory, directory.name, context=settings.context_length)
    if settings.last_model is not None and Path(settings.last_model).is_dir():
        directory = Path(settings.last_model)
        return LoadRequest(directory, directory.name, context=settings.context_length)
    try:
        return LoadRequest(demo_checkpoint(), DEMO, context=settings.context_length)
    except UserError as error:
        return error


def application(argv: Sequence[str]) -> Application:
    """The Qt application, with what holds for every window."""
    existing = Application.instance()
    if isinstance(existing, Application):
        return existing
    made = Application(["inkstand", *argv])
    made.setApplicationName("Inkstand")
    made.setApplicationDisplayName("Inkstand")
    made.setDesktopFileName(APP_ID)
    made.setQuitOnLastWindowClosed(False)
    # Fusion paints from the palette alone, so that the tokens hold on every platform.
    made.setStyle("Fusion")
    return made


def run(
    argv: Sequence[str], *, loader: ModelLoader = Checkpoint, opened: Callable[[Gui], object] = lambda _gui: None
) -> int:
    """Run the window until the user quits. Where the program is open already, show its window instead.

    Args:
        opened: called with the window once it is shown.

    Raises:
        UserError: an argument is wrong, or another process has the data folder and does not answer.
    """
    instance = claim(user_paths().data)
    if instance is None:
        sys.stdout.write("Inkstand is open already; its window was brought to the front.\n")
        return 0
    try:
        return _run(argv, instance, loader, opened)
    finally:
        instance.close()


def tell(error: UserError) -> None:
    """Say in a window of its own why none was opened, to who started the program with a click and sees no terminal."""
    # Under pythonw and in bundles there is no stderr at all.
    terminal = cast("TextIO | None", sys.stderr)
    if (terminal is not None and terminal.isatty()) or application(()).platformName() == "offscreen":
        return
    QMessageBox.critical(None, "Inkstand", f"{error.title}\n\n{error.hint}")


def _run(argv: Sequence[str], instance: Instance, loader: ModelLoader, opened: Callable[[Gui], object]) -> int:
    qt = application(argv)
    closed = asyncio.Event()
    with event_loop(qt) as loop, quit_on_interrupt(closed.set):
        asyncio.set_event_loop(loop)
        notices: list[str] = []
        gui = build(user_paths(), loader, notices=notices)
        gui.crash.install()
        qt.file_opened.connect(gui.services.chats.import_from)
        loop.set_exception_handler(gui.crash.loop_handler)
        request = choose_model(argv, gui.services.preferences.value)

        async def main() -> bool:
            gui.window.quit_requested.connect(closed.set)
            # Forgetting waits for a start at which the history can be written.
            with contextlib.suppress(UserError):
                gui.services.history.chats.purge_deleted(KEEP_DELETED_S)
            start(gui, request, notices)
            instance.listen(gui.window.present)
            opened(gui)
            opening = asyncio.create_task(open_models(gui))
            opening.add_done_callback(lambda task: task.cancelled() or task.result())
            await closed.wait()
            instance.stop_listening()
            gui.window.request_quit()  # after Ctrl-C, of which the window knows nothing: it keeps what was not sent
            return await gui.shutdown()

        ended = cast("bool", loop.run_until_complete(main()))
    gui.crash.uninstall()
    # By Qt and now: the interpreter would take the widgets apart in any order when it ends.
    gui.window.deleteLater()
    qt.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
    if not ended:
        # The engine is deep in a computation; unwinding the interpreter under it would crash.
        _log.warning("The engine did not end in time")
        instance.close()
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)
    return 0
