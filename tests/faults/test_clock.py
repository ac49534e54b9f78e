"""The clock on the wall jumps by years: nothing is lost or out of order, and nothing that takes time waits for it."""

from __future__ import annotations

import asyncio
import re
import time
from email.utils import formatdate
from pathlib import Path

import pytest
from fake_hub import FakeHub, Fault, reach_plainly
from hub_desk import REPO, Desk
from person import said, send, shown
from PySide6.QtWidgets import QLabel
from window_fixtures import Opened, Wait

from app.composition import Gui
from app.scripted import Script, scripted_loader
from engine.hub.retry import retry_after

YEAR = 365.25 * 86400


class Clock:
    """The time of day, as this process sees it."""

    def __init__(self) -> None:
        self._real = time.time
        self.off = 0.0

    def __call__(self) -> float:
        return self._real() + self.off


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "time", made)
    return made


def ask(gui: Gui, clock: Clock, text: str, wait: Wait) -> None:
    gui.services.history.database.clock = clock
    send(gui, text)
    wait(lambda: not gui.services.queue.busy)


@pytest.mark.parametrize("jumps", [(-30 * YEAR, 0, 30 * YEAR), (60 * YEAR, -50 * YEAR, 0), (0, -0.5, 0.5)])
def test_messages_stay_in_the_order_they_were_sent(
    jumps: tuple[float, ...], opened: Opened, script: Script, clock: Clock, wait: Wait
) -> None:
    gui = opened(scripted_loader(script))
    for turn, clock.off in enumerate(jumps):
        ask(gui, clock, f"message {turn}", wait)
    assert shown(gui) == ["message 0", "message 1", "message 2"]
    path = [message.id for message in gui.services.chat.path]
    chat = gui.services.chat.chat
    assert chat is not None
    opened.close(gui)
    gui = opened(scripted_loader(script))
    gui.window.chats.open(chat.id)
    assert shown(gui) == ["message 0", "message 1", "message 2"]
    assert [message.id for message in gui.services.chat.path] == path
    assert said(gui) == ""
    # Branches are told apart by who came first, not by when.
    clock.off = -40 * YEAR
    gui.services.history.database.clock = clock
    gui.services.chat.edit(path[0], "message 0, again")
    wait(lambda: not gui.services.queue.busy)
    assert gui.services.chat.path[0].branch == (2, 2)


def test_durations_do_not_follow_the_clock(opened: Opened, script: Script, clock: Clock, wait: Wait) -> None:
    script.rate = 60.0
    gui = opened(scripted_loader(script))
    gui.services.history.database.clock = clock
    send(gui, "think")
    page = gui.window.page
    wait(lambda: gui.services.chat.path[-1].reasoning)
    clock.off = 20 * YEAR
    wait(lambda: gui.services.chat.path[-1].content)
    clock.off = -20 * YEAR
    wait(lambda: not gui.services.queue.busy)
    message = gui.services.chat.path[-1]
    assert message.reasoning_s is not None
    assert 0 <= message.reasoning_s < 30
    assert message.stats is not None
    view = page.transcript.view(message.id)
    texts = " ".join(label.text() for label in view.findChildren(QLabel))
    assert "tok/s" in texts
    assert re.search(r"[-−]\d", texts) is None


@pytest.mark.parametrize("off", [-20 * YEAR, 20 * YEAR])
def test_saves_go_on_while_the_clock_jumps(
    off: float, opened: Opened, script: Script, clock: Clock, wait: Wait
) -> None:
    script.rate = 40.0
    gui = opened(scripted_loader(script))
    gui.services.history.database.clock = clock
    send(gui, "slowly")
    wait(lambda: gui.services.chat.path[-1].content)
    answer = gui.services.chat.path[-1].id
    clock.off = off
    stored = gui.services.history.messages.get(answer)
    before = len(stored.content) + len(stored.reasoning)

    def grown() -> bool:
        message = gui.services.history.messages.get(answer)
        return len(message.content) + len(message.reasoning) > before

    wait(grown, 5)


@pytest.mark.parametrize("off", [-50 * YEAR, 200 * YEAR])
def test_chats_of_any_time_are_listed(off: float, opened: Opened, script: Script, clock: Clock, wait: Wait) -> None:
    gui = opened(scripted_loader(script))
    ask(gui, clock, "today", wait)
    gui.window.new_chat()
    clock.off = off
    ask(gui, clock, "some day", wait)
    clock.off = 0
    gui.services.chats.refresh()
    assert {chat.title for chat in gui.services.history.chats.list()} == {"today", "some day"}
    gui.window.sidebar.grab()
    opened.close(gui)
    gui = opened(scripted_loader(script))
    gui.window.sidebar.grab()
    assert len(gui.services.history.chats.list()) == 2


def test_a_chat_that_was_just_deleted_outlives_a_jump(opened: Opened, script: Script, clock: Clock, wait: Wait) -> None:
    gui = opened(scripted_loader(script))
    ask(gui, clock, "keep me", wait)
    chat = gui.services.chat.chat
    assert chat is not None
    clock.off = -3 * YEAR
    gui.services.chats.delete(chat.id)
    assert gui.services.history.chats.purge_deleted(7 * 86400) == 0
    gui.services.chats.undo(chat.id)
    assert [c.id for c in gui.services.history.chats.list()] == [chat.id]


class TestDownloads:
    @pytest.fixture
    def desk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        reach_plainly(monkeypatch)
        with FakeHub() as hub:
            yield Desk(hub, tmp_path)

    @pytest.mark.parametrize("off", [-10 * YEAR, 10 * YEAR])
    def test_a_jump_changes_neither_rate_nor_end(self, off: float, desk: Desk, clock: Clock) -> None:
        files = {"model.safetensors": bytes(600_000), "config.json": b"{}"}
        desk.hub.push(REPO, files)
        desk.hub.slice = 1 << 12
        desk.hub.signed_for = 100 * YEAR
        desk.hub.fault = lambda request: Fault(rate=1e6)
        seen: list[tuple[float | None, float | None]] = []

        def watch(progress) -> None:
            if clock.off:
                seen.append((progress.rate, progress.eta))
            if progress.done > 200_000:
                clock.off = off

        async def run() -> str:
            async with desk.manager() as manager:
                return (await desk.fetch(manager, watch)).state

        began = time.monotonic()
        assert asyncio.run(run()) == "ready"
        assert time.monotonic() - began < 20
        desk.check(files)
        assert clock.off == off
        assert [rate for rate, _ in seen if rate is not None and not 0 < rate < 1e9] == []
        assert [eta for _, eta in seen if eta is not None and not 0 <= eta < 60] == []

    @pytest.mark.parametrize("off", [-10 * YEAR, 10 * YEAR])
    def test_a_wait_until_a_date_is_by_the_servers_clock(
        self, off: float, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever's clock is wrong: a second is a second."""
        now = time.time() + off
        monkeypatch.setattr("fake_hub._Handler.date_time_string", lambda *_: formatdate(now, usegmt=True))
        desk.hub.push(REPO, {"model.safetensors": bytes(10_000)})
        refused: list[float] = []

        def busy(_request) -> Fault | None:
            if len(refused) < 2:
                refused.append(time.monotonic())
                return Fault(status=503, headers={"Retry-After": formatdate(now + 1, usegmt=True)})
            return None

        desk.hub.fault = busy

        async def run() -> str:
            async with desk.manager() as manager:
                return (await desk.fetch(manager)).state

        began = time.monotonic()
        assert asyncio.run(run()) == "ready"
        assert 0.9 < time.monotonic() - began < 15


def test_retry_after_a_date_without_the_servers_clock() -> None:
    soon = formatdate(time.time() + 30, usegmt=True)
    waited = retry_after({"retry-after": soon})
    assert waited is not None
    assert 25 < waited <= 31
    now = formatdate(0, usegmt=True)
    assert retry_after({"retry-after": formatdate(30, usegmt=True), "date": now}) == 30
    assert retry_after({"retry-after": formatdate(30, usegmt=True), "date": "yesterday"}) == 0
