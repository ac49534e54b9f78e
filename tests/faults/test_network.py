"""The network goes away in every stage of a download, and comes back or does not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import hub_window
import pytest
from hub.fake_hub import FakeHub, Fault, Request
from hub_desk import REPO, Desk
from hub_window import FILES, HubWindow, Scenario, run_window, tiny_hub, window_loop
from PySide6.QtWidgets import QApplication

from app.scripted import Script, scripted_loader
from app.views.models.plan_dialog import PlanDialog
from engine.hub.client import HubClient
from engine.hub.errors import HubError, OfflineError
from engine.hub.manager import DownloadManager
from engine.hub.move import move_models
from engine.hub.plan import PlanRequest
from engine.hub.retry import RetryPolicy
from engine.installed import open_library

SHORT = RetryPolicy(first=0.02, ceiling=0.1, give_up_after=0.5, metadata_give_up_after=0.3)
PATIENT = RetryPolicy(first=0.02, ceiling=0.1)
Play = Callable[[Scenario], None]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with tiny_hub(monkeypatch, REPO) as hub:
        hub.slice = 1 << 14
        yield hub


def cut_at(hub: FakeHub, number: int) -> threading.Timer:
    """The network goes away as request `number` comes in, and is back a moment later."""
    note, back = hub.note, threading.Timer(0.25, lambda: setattr(hub, "down", False))

    def noted(request: Request) -> None:
        note(request)
        if len(hub.log) == number:
            hub.cut()
            back.start()

    hub.note = noted  # type: ignore[method-assign]
    return back


@pytest.mark.parametrize("number", range(1, 11))
def test_a_cut_at_any_request_is_got_over(number: int, hub: FakeHub, tmp_path: Path) -> None:
    """The description, the listing, headers, redirects, ranges of files: whichever it hits."""
    back = cut_at(hub, number)
    desk = Desk(hub, tmp_path)  # type: ignore[arg-type]

    async def run() -> str:
        async with desk.manager(retry=PATIENT) as manager:
            return (await desk.fetch(manager)).state

    try:
        assert asyncio.run(asyncio.wait_for(run(), 30)) == "ready"
        assert back.finished.is_set() or len(hub.log) < number
    finally:
        back.cancel()
        if back.ident:
            back.join()
    desk.check(FILES)


def share(window: HubWindow) -> float:
    """Of the download, how much is there."""
    progress = window.row(REPO).progress
    return 0.0 if progress is None or not progress.total else progress.done / progress.total


class TestWindow:
    @pytest.fixture
    def loop(self, qapp: QApplication) -> Iterator[asyncio.AbstractEventLoop]:
        with window_loop(qapp) as loop:
            yield loop

    @pytest.fixture
    def play(self, loop: asyncio.AbstractEventLoop, hub: FakeHub, script: Script, inkstand_home: Path) -> Play:
        return lambda scenario: run_window(loop, hub, scripted_loader(script), scenario)

    @staticmethod
    async def plan(window: HubWindow) -> PlanDialog:
        page = window.gui.manager.page
        window.gui.manager.show_page()
        page.field.setText(REPO)
        page.go.click()
        dialog = window.gui.window.findChildren(PlanDialog)[-1]
        await window.until(lambda: dialog.plan is not None or dialog.error_button.isVisible())
        return dialog

    @staticmethod
    def slow(hub: FakeHub) -> None:
        hub.fault = lambda request: Fault(rate=400_000) if (request.file or "").endswith(".safetensors") else None

    def test_without_a_network_a_plan_says_so_and_can_be_asked_again(
        self, play: Play, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hub_window, "RETRY", SHORT)

        async def scenario(window: HubWindow) -> None:
            hub.cut()
            dialog = await self.plan(window)
            assert dialog.plan is None
            assert not dialog.go.isEnabled()
            assert "127.0.0.1" in dialog.status.text()
            assert "Check the connection" in dialog.status.text()
            hub.down = False
            dialog.error_button.click()
            await window.until(lambda: dialog.plan is not None)
            dialog.go.click()
            await window.until(lambda: window.has(REPO) and window.row(REPO).state == "Ready")

        play(scenario)

    def test_a_download_that_loses_its_network_says_so_and_goes_on_by_itself(self, play: Play, hub: FakeHub) -> None:
        async def scenario(window: HubWindow) -> None:
            self.slow(hub)
            (await self.plan(window)).go.click()
            await window.until(lambda: window.has(REPO) and share(window) > 0.2)
            hub.cut()
            await window.until(lambda: window.row(REPO).state == "Stalled")
            row = window.row(REPO)
            assert row.note is not None
            assert "127.0.0.1" in row.note.text
            assert "network" in row.note.text
            assert row.main == "pause"
            hub.down = False
            hub.fault = lambda request: None
            await window.until(lambda: window.row(REPO).state == "Ready")

        play(scenario)

    def test_a_network_that_stays_away_ends_in_advice_and_resume_goes_on(
        self, play: Play, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hub_window, "RETRY", SHORT)

        async def scenario(window: HubWindow) -> None:
            self.slow(hub)
            (await self.plan(window)).go.click()
            await window.until(lambda: window.has(REPO) and share(window) > 0.2)
            hub.cut()
            await window.until(lambda: window.row(REPO).main == "resume")
            row = window.row(REPO)
            assert row.note is not None
            assert "Check the connection" in row.note.text
            assert "run the same" not in row.note.text, "that is for who has commands"
            fetched = hub.sent()
            hub.down = False
            hub.fault = lambda request: None
            window.gui.manager.act(row.key, "resume")
            await window.until(lambda: window.row(REPO).state == "Ready")
            assert hub.sent() < fetched + sum(map(len, FILES.values()))

        play(scenario)

    def test_a_start_without_a_network_keeps_the_download_and_goes_on_when_it_is_back(
        self, play: Play, hub: FakeHub
    ) -> None:
        async def first(window: HubWindow) -> None:
            self.slow(hub)
            (await self.plan(window)).go.click()
            await window.until(lambda: window.has(REPO) and share(window) > 0.2)

        async def second(window: HubWindow) -> None:
            await window.until(lambda: window.has(REPO) and window.row(REPO).state == "Stalled")
            assert share(window) > 0.2
            hub.down = False
            hub.fault = lambda request: None
            await window.until(lambda: window.row(REPO).state == "Ready")

        play(first)
        hub.cut()
        play(second)

    def test_models_on_disk_need_no_network(self, play: Play, hub: FakeHub) -> None:
        async def fetch(window: HubWindow) -> None:
            (await self.plan(window)).go.click()
            await window.until(lambda: window.has(REPO) and window.row(REPO).state == "Ready")

        async def use(window: HubWindow) -> None:
            row = window.row(REPO)
            assert (row.state, row.main) == ("Ready", "load")
            window.gui.manager.act(row.key, "verify")
            await window.until(lambda: window.row(REPO).note is not None)
            note = window.row(REPO).note
            assert note is not None
            assert "as they were downloaded" in note.text
            window.gui.models.load(row.key, 512)
            await window.until(lambda: window.row(REPO).state == "Loaded")

        play(fetch)
        hub.cut()
        asked = len(hub.log)
        play(use)
        assert len(hub.log) == asked

    def test_a_move_that_ended_with_the_program_goes_on_at_the_next_start(
        self, play: Play, hub: FakeHub, tmp_path: Path
    ) -> None:
        async def begin(window: HubWindow) -> None:
            (await self.plan(window)).go.click()
            await window.until(lambda: window.has(REPO) and window.row(REPO).state == "Ready")

        def cut(_moved: int, _total: int) -> None:
            raise InterruptedError

        async def go_on(window: HubWindow) -> None:
            await window.until(lambda: any("being moved" in text for text in window.told))
            await window.until(lambda: window.has(REPO) and window.row(REPO).state == "Ready")
            assert window.row(REPO).key == str(tmp_path / "elsewhere" / REPO)
            assert window.gui.services.preferences.value.models_folder == tmp_path / "elsewhere"

        play(begin)
        with pytest.raises(HubError):
            move_models(open_library(), tmp_path / "elsewhere", report=cut)
        play(go_on)


def test_a_name_that_cannot_be_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*_: object, **__: object) -> None:
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    async def run() -> None:
        manager = DownloadManager(
            tmp_path / "downloads", client=lambda _: HubClient(endpoint="http://hub.invalid", token=False, retry=SHORT)
        )
        async with manager:
            monkeypatch.setattr(socket, "getaddrinfo", refuse)
            with pytest.raises(OfflineError) as caught:
                await manager.plan(PlanRequest(REPO), tmp_path / "models")
        assert "hub.invalid cannot be reached" in caught.value.title
        assert "Check the network" in caught.value.hint

    asyncio.run(run())
    assert not (tmp_path / "models").exists()
