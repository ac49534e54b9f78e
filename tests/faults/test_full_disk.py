"""A disk without room: what cannot be kept is not accepted, what was accepted is kept, and the window says so."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from disks import SmallDisk
from fake_hub import FakeHub, Fault, reach_plainly
from hub_desk import REPO, Desk
from person import said, send, shown
from window_fixtures import Opened, Wait

from app.composition import Gui
from app.engine_host import LoadRequest
from app.scripted import Said, Script, scripted_loader
from app.store.history import History
from engine.hub.progress import DownloadProgress
from engine.paths import user_paths

TINY = Path(__file__).parents[1] / "data" / "inkling-tiny"
ROOT = Path(__file__).parents[2]


class PageLimit:
    """The same for a history alone, without a disk: SQLite refuses to let the file grow."""

    def __init__(self, gui: Gui) -> None:
        self._database = gui.services.history.database

    def _pragma(self, text: str) -> int:
        with self._database.write() as connection:
            return connection.execute(text).fetchone()[0]

    def fill(self) -> None:
        self._pragma(f"PRAGMA max_page_count = {self._pragma('PRAGMA page_count')}")

    def make_room(self) -> None:
        self._pragma("PRAGMA max_page_count = 1000000")


Full = SmallDisk | PageLimit


@pytest.fixture(params=["disk", "pages"])
def gui_and_disk(request: pytest.FixtureRequest, opened: Opened, script: Script) -> Iterator[tuple[Gui, Full]]:
    """A window, and a disk that can be filled under it."""
    if request.param == "disk":
        disk = request.getfixturevalue("small_disk")
        gui = opened(scripted_loader(script))
        yield gui, disk
        opened.close(gui)
    else:
        gui = opened(scripted_loader(script))
        yield gui, PageLimit(gui)


LONG = ("tide pool " * 30_000).strip()


def test_a_message_that_cannot_be_kept_stays_in_the_composer(gui_and_disk: tuple[Gui, Full], wait: Wait) -> None:
    gui, disk = gui_and_disk
    send(gui, "first")
    wait(lambda: not gui.services.queue.busy)
    disk.fill()
    send(gui, LONG)
    assert "disk is full" in said(gui)
    assert "Make room" in said(gui)
    assert shown(gui) == ["first"]
    assert gui.window.page.composer.text == LONG
    disk.make_room()
    gui.window.page.composer.editor.setFocus()
    send(gui)
    wait(lambda: not gui.services.queue.busy)
    assert shown(gui) == ["first", LONG]
    assert gui.window.page.composer.text == ""


def test_an_edit_that_cannot_be_kept_stays_in_its_editor(gui_and_disk: tuple[Gui, Full], wait: Wait) -> None:
    gui, disk = gui_and_disk
    send(gui, "first")
    wait(lambda: not gui.services.queue.busy)
    disk.fill()
    page = gui.window.page
    mine = page.transcript.messages[0].id
    view = page.transcript.view(mine)
    view.start_edit(LONG)
    view._send_edit()
    assert "disk is full" in said(gui)
    assert view.editing
    disk.make_room()
    view._send_edit()
    wait(lambda: not gui.services.queue.busy)
    assert shown(gui) == [LONG]


def test_an_answer_that_cannot_be_kept_yet_is_kept_as_soon_as_it_can(
    gui_and_disk: tuple[Gui, Full], script: Script, wait: Wait
) -> None:
    gui, disk = gui_and_disk
    script.answers, script.rate = lambda _turns: Said(LONG), 0.0
    script.context = 1 << 20
    gui.services.host.load(LoadRequest(Path("demo"), "Inkstand Demo"))
    wait(lambda: gui.services.host.facts is not None)
    send(gui, "tell me")
    disk.fill()
    wait(lambda: not gui.services.queue.busy, 30)
    assert "disk is full" in said(gui)
    answer = gui.services.chat.path[-1]
    assert answer.content.startswith("tide pool")
    disk.make_room()
    history = gui.services.history
    wait(lambda: history.messages.get(answer.id).state == "done")
    assert history.messages.get(answer.id).content == answer.content


@pytest.mark.parametrize("killed", [False, True], ids=["after a quit", "after a kill"])
def test_a_full_disk_at_the_start_leaves_the_chats_readable(
    killed: bool, small_disk: SmallDisk, opened: Opened, script: Script
) -> None:
    path = user_paths().data / "history.sqlite3"
    leave = "import os; os._exit(0)" if killed else "history.close()"
    made = (
        "import sys; from pathlib import Path; from app.store.history import History;"
        "history = History.open(Path(sys.argv[1]));"
        f"history.messages.send(history.chats.create().id, 'kept'); {leave}"
    )
    subprocess.run([sys.executable, "-c", made, str(path)], cwd=ROOT, check=True)
    (user_paths().config).mkdir()
    small_disk.fill()
    gui = opened(scripted_loader(script), greedy=False)
    entry = gui.services.history.chats.list()[0]
    gui.window.chats.open(entry.id)
    assert shown(gui) == ["kept"]
    if not killed:
        assert "open for reading only" in said(gui)
        assert "Make room" in said(gui)
    send(gui, "lost?")
    assert "read" in said(gui) or "full" in said(gui)
    assert shown(gui) == ["kept"]
    assert gui.window.page.composer.text == "lost?"
    opened.close(gui)
    small_disk.make_room()
    gui = opened(scripted_loader(script), greedy=False)
    gui.window.chats.open(entry.id)
    send(gui, "not lost")
    assert shown(gui) == ["kept", "not lost"]
    opened.close(gui)


def test_the_first_start_on_a_full_disk(small_disk: SmallDisk, opened: Opened, script: Script) -> None:
    small_disk.fill()
    gui = opened(scripted_loader(script), greedy=False)
    assert "not kept" in said(gui)
    send(gui, "hello")
    assert shown(gui) == ["hello"]
    opened.close(gui)


def test_settings_on_a_full_disk_hold_for_this_run_and_the_old_file_stays(
    small_disk: SmallDisk, opened: Opened, script: Script
) -> None:
    gui = opened(scripted_loader(script))
    path = user_paths().config / "settings.json"
    before = path.read_bytes()
    small_disk.fill()
    gui.services.preferences.update(font_size=20)
    assert "settings could not be written" in said(gui)
    assert "Make room" in said(gui)
    assert gui.services.preferences.value.font_size == 20
    assert path.read_bytes() == before
    opened.close(gui)
    assert sorted(file.name for file in path.parent.iterdir()) == ["settings.json"]


def command(*arguments: str, limit: int) -> subprocess.CompletedProcess[str]:
    """`inkstand ARGUMENTS` in a process that may not write files longer than `limit`."""
    limited: Callable[[], None] = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))  # noqa: E731
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limited,
    )


def test_a_conversion_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    done = command("convert", str(TINY), str(tmp_path / "copy"), "--quantize", "4:32", limit=100_000)
    assert done.returncode == 2, done.stderr
    assert "cannot be written: File too large" in done.stderr
    assert "another volume" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_conversion_onto_a_full_disk_leaves_nothing(small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.errors import UserError
    from engine.weights.convert import convert
    from engine.weights.recipe import Recipe

    # As if something else filled the disk in the meantime.
    monkeypatch.setattr("engine.weights.convert._RESERVE_BYTES", -(1 << 30))
    ballast = small_disk.root / "other"
    ballast.write_bytes(b"\0" * (3 << 20))
    with pytest.raises(UserError, match="No space left on device") as caught:
        convert(TINY, small_disk.root / "copy", Recipe(None))
    assert "Free some space" in caught.value.hint
    assert [path.name for path in small_disk.root.iterdir()] == ["other"]


def test_a_history_longer_than_a_file_may_be_keeps_what_was_accepted(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    program = (
        "import sys; from pathlib import Path; from app.store.errors import StoreError;"
        "from app.store.history import History\n"
        "history = History.open(Path(sys.argv[1])); chat = history.chats.create()\n"
        "try:\n"
        "    for turn in range(10_000):\n"
        "        history.messages.send(chat.id, f'message {turn} ' + 'x' * 500); print(turn, flush=True)\n"
        "except StoreError as error:\n"
        "    print(error, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000)),
    )
    assert "cannot be used" in done.stderr
    accepted = len(done.stdout.split())
    assert accepted > 3
    history = History.open(path)
    kept = history.messages.path(history.chats.list()[0].id)
    history.close()
    assert [message.content.split()[1] for message in kept][:accepted] == [str(turn) for turn in range(accepted)]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.85])
def test_a_download_onto_a_disk_that_fills_up_waits_for_room(
    share: float, small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach_plainly(monkeypatch)
    files = {f"model-{k}.safetensors": os.urandom(400_000) for k in range(3)} | {"config.json": b"{}"}
    with FakeHub() as hub:
        hub.push(REPO, files)
        hub.slice = 1 << 13
        hub.fault = lambda request: Fault(rate=5e5)
        desk = Desk(hub, small_disk.root)
        filled = False

        def watch(progress: DownloadProgress) -> None:
            nonlocal filled
            if not filled and progress.done >= share * progress.total and progress.state == "downloading":
                filled = True
                small_disk.fill()

        async def run() -> tuple[DownloadProgress, DownloadProgress]:
            async with desk.manager() as manager:
                stopped = await desk.fetch(manager, watch)
                small_disk.make_room()
                await manager.resume(stopped.job)
                return stopped, await manager.wait(stopped.job)

        stopped, done = asyncio.run(run())
        assert stopped.state == "paused"
        assert stopped.code == "disk-full"
        assert stopped.cure is not None
        assert "Free some space" in stopped.cure
        assert done.state == "ready"
        desk.check(files)
        assert hub.sent() < 1.5 * sum(map(len, files.values()))
