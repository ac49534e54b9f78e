"""A window whose models come from a fake hub, driven inside the event loop that the program uses."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hub.fake_hub import FakeHub, reach_plainly
from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QApplication

from app.composition import Gui, build, start
from app.engine_host import LoadRequest, ModelLoader
from app.event_loop import event_loop
from app.hub_access import HubAccess
from app.model_rows import Row
from app.settings import Sampling, Settings
from app.settings_file import SettingsFile
from engine.hub.client import HubClient
from engine.hub.context import TransferSettings
from engine.hub.library import Library
from engine.hub.manager import DownloadManager
from engine.hub.retry import RetryPolicy
from engine.installed import read_facts
from engine.paths import user_paths

SETTINGS = TransferSettings(
    chunk=1 << 16, run=4, buffer=1 << 14, stall_after=1.0, quiet_after=0.2, tick=0.03, space_check=0.05
)
RETRY = RetryPolicy(first=0.02, ceiling=0.1)
Scenario = Callable[["HubWindow"], Awaitable[None]]
_TINY = Path(__file__).parents[1] / "data" / "inkling-tiny"
FILES = {path.name: path.read_bytes() for path in _TINY.iterdir()}
"""Those of the tiny checkpoint."""


@contextmanager
def tiny_hub(monkeypatch: pytest.MonkeyPatch, repo: str) -> Iterator[FakeHub]:
    """A hub with the tiny checkpoint, reached past proxies."""
    reach_plainly(monkeypatch)
    with FakeHub() as hub:
        hub.push(repo, FILES)
        yield hub


@contextmanager
def window_loop(qapp: QApplication) -> Iterator[asyncio.AbstractEventLoop]:
    """The program's event loop; what is left of a window is collected at the end, on this thread.

    The threads of the fake hub must not do it.
    """
    gc.disable()
    with event_loop(qapp) as loop:
        asyncio.set_event_loop(loop)
        yield loop
    asyncio.set_event_loop(None)
    qapp.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
    gc.collect()
    gc.enable()


@dataclass
class HubWindow:
    """One run of the program. `told` collects what the page said."""

    gui: Gui
    hub: FakeHub
    told: list[str] = field(default_factory=list)

    def row(self, part: str) -> Row:
        """The row whose title ends in `part`."""
        return next(row for row in self.gui.models.rows if row.title.endswith(part))

    def has(self, part: str) -> bool:
        return any(row.title.endswith(part) and row.section != "Catalog" for row in self.gui.models.rows)

    async def until(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 (there is no event for what a window shows)
                await asyncio.sleep(0.005)


def run_window(
    loop: asyncio.AbstractEventLoop,
    hub: FakeHub,
    loader: ModelLoader,
    scenario: Scenario,
    *,
    reserve: int = 0,
    demo: LoadRequest | None = None,
) -> None:
    """Open the window, play the scenario and quit; files and settings are those of the test's home."""
    paths = user_paths()
    file = SettingsFile(paths.config / "settings.json")
    if not file.path.exists():
        file.save(Settings(sampling=Sampling(temperature=0.0), theme="light"))

    def access() -> HubAccess:
        def client(endpoint: str | None) -> HubClient:
            return HubClient(endpoint=endpoint or hub.endpoint, token=False, retry=RETRY, stall_after=1.0)

        library = Library(paths.data, read_facts, cache=paths.cache / "hf")
        return HubAccess(
            library,
            lambda: DownloadManager(library.journals, settings=replace(SETTINGS), client=client, reserve=reserve),
        )

    async def main() -> None:
        gui = build(paths, loader, hub=access)
        window = HubWindow(gui, hub)
        gui.models.told.connect(window.told.append)
        start(gui, demo or LoadRequest(Path("demo"), "Inkstand Demo"), [])
        try:
            await gui.models.open()
            await window.until(lambda: gui.services.host.facts is not None)
            await scenario(window)
        finally:
            await gui.shutdown()
            gui.window.deleteLater()

    loop.run_until_complete(main())
