"""The model manager against a fake hub, in the program's own event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hub.fake_hub import FakeHub, Fault
from hub_window import FILES, HubWindow, Scenario, run_window, tiny_hub, window_loop
from PySide6.QtCore import QTimer, QUrl
from PySide6.QtWidgets import QApplication, QFileDialog, QLineEdit, QPushButton

from app.engine_host import Checkpoint, LoadRequest
from app.scripted import Script, scripted_loader
from app.views.models.confirm import Confirm
from app.views.models.ledger_dialog import LedgerDialog
from app.views.models.plan_dialog import PlanDialog
from app.views.settings_dialog import SettingsDialog
from engine.hub.storage import verify_model
from engine.paths import demo_checkpoint, user_paths

REPO = "owner/inkling-tiny"
Play = Callable[[Scenario], None]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with tiny_hub(monkeypatch, REPO) as hub:
        yield hub


@pytest.fixture
def loop(qapp: QApplication) -> Iterator[asyncio.AbstractEventLoop]:
    with window_loop(qapp) as loop:
        yield loop


@pytest.fixture
def play(loop: asyncio.AbstractEventLoop, hub: FakeHub, script: Script, inkstand_home: Path) -> Play:
    del inkstand_home
    return lambda scenario: run_window(loop, hub, scripted_loader(script), scenario)


def slow(hub: FakeHub, rate: float = 600_000) -> None:
    """Weights come so slowly that there is time to look."""
    hub.fault = lambda request: Fault(rate=rate) if (request.file or "").endswith(".safetensors") else None


def typed(window: HubWindow, text: str) -> PlanDialog:
    """What typing a name and pressing the button opens."""
    page = window.gui.manager.page
    window.gui.manager.show_page()
    page.field.setText(text)
    page.go.click()
    return window.gui.window.findChildren(PlanDialog)[-1]


async def plan_of(window: HubWindow, text: str = REPO) -> PlanDialog:
    dialog = typed(window, text)
    await window.until(lambda: dialog.plan is not None or dialog.error_button.isVisible())
    return dialog


async def download(window: HubWindow) -> None:
    dialog = await plan_of(window)
    dialog.go.click()
    await window.until(lambda: window.has(REPO) and window.row(REPO).state == "Ready")


def answer(window: HubWindow, name: str) -> None:
    """Press a button of the question that is open."""
    question = window.gui.window.findChildren(Confirm)[-1]
    next(button for button in question.findChildren(QPushButton) if button.text() == name).click()


def test_a_typed_name_is_planned_fetched_and_ready_to_load(play: Play, hub: FakeHub, script: Script) -> None:
    async def scenario(window: HubWindow) -> None:
        dialog = await plan_of(window)
        assert not [request for request in hub.content_requests() if request.file == "mtp.safetensors"]
        assert dialog.plan is not None
        assert dialog.files.topLevelItemCount() == len(FILES)
        assert "free on that volume" in dialog.space_text.text()
        assert str(user_paths().data) in dialog.target.text()
        dialog.go.click()
        await window.until(lambda: window.has(REPO) and window.row(REPO).state == "Ready")
        row = window.row(REPO)
        assert (row.main, row.head_offer) == ("load", "")
        assert "MTP head with 3 depths" in row.detail
        # Loading goes through the ledger.
        window.gui.manager.page.views[row.key].main.click()
        ledger = window.gui.window.findChildren(LedgerDialog)[-1]
        await window.until(ledger.go.isEnabled)
        assert ledger.estimate is not None
        assert ledger.estimate.footprint.depths == 3
        assert ledger.figures["weights"].text() == "1.81 MB"
        assert ledger.go.text() == "Load"
        ledger.go.click()
        await window.until(lambda: window.row(REPO).state == "Loaded")
        assert window.gui.services.host.facts is not None
        assert str(window.gui.services.host.facts.directory) == row.key
        assert window.gui.window.toolbar.model_button.text() == REPO
        assert window.gui.services.preferences.value.last_model == row.key
        assert [action for action in window.row(REPO).menu if action == "unload"]
        window.gui.manager.act(row.key, "unload")
        await window.until(lambda: window.row(REPO).state == "Ready")
        assert window.gui.services.host.facts is None

    play(scenario)


def test_progress_shows_on_every_page_and_pause_and_resume_keep_it(play: Play, hub: FakeHub) -> None:
    slow(hub)

    async def scenario(window: HubWindow) -> None:
        manager = window.gui.manager
        dialog = await plan_of(window)
        dialog.go.click()
        await window.until(lambda: window.has(REPO) and (window.row(REPO).progress or dialog) is not dialog)
        await window.until(lambda: window.row(REPO).progress.done > 300_000)  # pyright: ignore[reportOptionalMemberAccess]
        window.gui.window.new_chat()
        assert not manager.page.isVisible()
        assert manager.bar.isVisible()
        assert "inkling-tiny" in manager.bar.accessibleName()
        assert window.gui.guard.active or window.gui.models.downloads.busy
        view = manager.page.views[window.row(REPO).key]
        assert view.meter.value() > 0
        view.files_button.click()
        assert any(line.name.text() == "mtp.safetensors" for line in view._lines)
        view.main.click()
        await window.until(lambda: window.row(REPO).state == "Paused")
        assert not manager.bar.isVisible()
        there = window.row(REPO).progress
        assert there is not None
        assert view.main.text() == "Resume"
        view.main.click()
        await window.until(lambda: window.row(REPO).progress is not None and window.row(REPO).main == "pause")
        hub.fault = lambda _request: None
        await window.until(lambda: window.row(REPO).state == "Ready")

    play(scenario)


def test_a_download_goes_on_after_quit_and_relaunch(play: Play, hub: FakeHub) -> None:
    slow(hub)

    async def first(window: HubWindow) -> None:
        (await plan_of(window)).go.click()
        await window.until(lambda: window.has(REPO) and window.row(REPO).progress is not None)
        await window.until(lambda: window.row(REPO).progress.done > 200_000)  # pyright: ignore[reportOptionalMemberAccess]

    began = time.monotonic()
    play(first)
    assert time.monotonic() - began < 15

    async def second(window: HubWindow) -> None:
        assert window.row(REPO).progress is not None
        hub.fault = lambda _request: None
        await window.until(lambda: window.row(REPO).state == "Ready")

    sent = hub.sent()
    play(second)
    total = sum(map(len, FILES.values()))
    assert sent + 100_000 < hub.sent() + 100_000 <= total + 700_000, "what was there was not fetched again"


def test_stalled_is_said_and_cancelling_says_what_it_freed(play: Play, hub: FakeHub) -> None:
    hub.fault = lambda request: Fault(stall_after=100_000) if (request.file or "").startswith("model-") else None

    async def scenario(window: HubWindow) -> None:
        (await plan_of(window)).go.click()
        await window.until(lambda: window.has(REPO) and window.row(REPO).state == "Stalled")
        note = window.row(REPO).note
        assert note is not None
        assert note.tone == "warning"
        assert "stalled" in window.gui.manager.bar.accessibleName()
        window.gui.manager.act(window.row(REPO).key, "discard")
        answer(window, "Delete")
        await window.until(lambda: not window.has(REPO))
        assert any("freed" in text for text in window.told)
        assert not window.gui.manager.bar.isVisible()

    play(scenario)
    assert not list((user_paths().data / "models").rglob("*.safetensors*"))


def test_errors_stand_in_the_dialog_with_their_cure(play: Play, hub: FakeHub) -> None:
    hub.push("owner/gated", FILES)
    hub.repos["owner/gated"].gated = True
    opened: list[QUrl] = []

    async def scenario(window: HubWindow) -> None:
        window.gui.manager._open_url = opened.append
        dialog = await plan_of(window, "owner/gated")
        assert "terms" in dialog.status.text()
        assert not dialog.go.isEnabled()
        dialog.error_button.click()
        assert opened[-1].path() == "/owner/gated"
        dialog.close()
        dialog = await plan_of(window, "owner/none-such")
        assert "owner/none-such" in dialog.status.text()
        assert dialog.error_button.text() == "Try again"
        hub.push("owner/none-such", FILES)
        dialog.error_button.click()
        await window.until(lambda: dialog.plan is not None)
        dialog.close()
        window.gui.manager.page.field.setText("not a name")
        window.gui.manager.page.go.click()
        assert "not a name" in window.gui.manager.page.field_note.text()
        assert window.gui.manager.page.field_note.isVisible()

    play(scenario)


def test_what_does_not_fit_cannot_be_started(loop: asyncio.AbstractEventLoop, hub: FakeHub, script: Script) -> None:
    async def scenario(window: HubWindow) -> None:
        dialog = await plan_of(window)
        assert dialog.plan is not None
        assert not dialog.plan.fits
        assert not dialog.go.isEnabled()
        assert "missing" in dialog.space_text.text()
        dialog.close()

    run_window(loop, hub, scripted_loader(script), scenario, reserve=1 << 60)


def test_only_the_head_is_fetched_and_paired_by_itself(play: Play, hub: FakeHub) -> None:
    hub.push("owner/plain", {name: data for name, data in FILES.items() if name != "mtp.safetensors"})

    async def scenario(window: HubWindow) -> None:
        dialog = await plan_of(window, "owner/plain")
        dialog.go.click()
        await window.until(lambda: window.has("owner/plain") and window.row("owner/plain").state == "Ready")
        row = window.row("owner/plain")
        assert row.head_offer == "Add MTP head…"
        window.gui.manager.page.views[row.key].head.click()
        dialog = window.gui.window.findChildren(PlanDialog)[-1]
        assert not dialog.repo.isHidden()
        dialog.repo.setText(REPO)
        dialog.ask()
        await window.until(lambda: dialog.plan is not None)
        assert dialog.plan is not None
        assert {file.path for file in dialog.plan.files} == {"config.json", "mtp.safetensors"}
        dialog.go.click()
        await window.until(lambda: window.has(REPO) and "MTP head of" in window.row("owner/plain").detail)
        assert window.row(REPO).section == "MTP heads"
        # Chosen by hand, then left to the library again.
        menu = window.gui.manager.head_menu(row.key)
        next(action for action in menu.actions() if action.text() == REPO).trigger()
        await window.until(lambda: window.gui.models._shelf.heads.get(row.key) is not None)
        window.gui.models.load(row.key, 1024)
        await window.until(lambda: window.row("owner/plain").state == "Loaded")
        asked = window.gui.models._asked
        assert asked is not None
        assert asked.draft_directory == Path(window.row(REPO).key)
        assert asked.context == 1024

    play(scenario)


def test_leaving_the_head_out_is_remembered_and_honoured(play: Play) -> None:
    async def choose(window: HubWindow) -> None:
        await download(window)
        key = window.row(REPO).key
        menu = window.gui.manager.head_menu(key)
        assert [action.text() for action in menu.actions() if action.isChecked()] == [
            "Automatic: its own, or one that fits"
        ]
        next(action for action in menu.actions() if action.text() == "No MTP head").trigger()
        await window.until(lambda: "without its MTP head" in window.row(REPO).detail)

    async def later(window: HubWindow) -> None:
        key = window.row(REPO).key
        assert "without its MTP head" in window.row(REPO).detail
        ledger = window.gui.manager.load(key)
        await window.until(ledger.go.isEnabled)
        assert ledger.estimate is not None
        assert ledger.estimate.footprint.head == 0
        assert "as chosen" in ledger.verdict.text()
        ledger.go.click()
        await window.until(lambda: window.row(REPO).state.startswith("Loaded"))
        asked = window.gui.models._asked
        assert asked is not None
        assert asked.draft_kind == "none"
        # One click takes it up again.
        window.gui.manager.page.views[key].head.click()
        await window.until(lambda: "MTP head with 3 depths" in window.row(REPO).detail)
        assert any("loaded again" in text for text in window.told)
        window.gui.models.load(key, 1024)
        assert (window.gui.models._asked or asked).draft_kind == "auto"
        await window.until(lambda: window.row(REPO).state == "Loaded")

    play(choose)
    play(later)


def test_what_cannot_be_loaded_is_refused_before_anything_is_unloaded(play: Play, hub: FakeHub) -> None:
    hub.push("owner/pickle", {"config.json": FILES["config.json"], "pytorch_model.bin": b"x" * 1000})

    async def scenario(window: HubWindow) -> None:
        dialog = await plan_of(window, "owner/pickle")
        assert "can be loaded" in dialog.status.text()
        assert not dialog.go.isEnabled()
        dialog.close()
        await download(window)
        key = window.row(REPO).key
        await asyncio.to_thread(lambda: [path.unlink() for path in Path(key).glob("model-*.safetensors")])
        window.gui.models.refresh()
        await window.until(lambda: window.row(REPO).main != "load")
        loaded = window.gui.services.host.facts
        window.gui.models.load(key, 1024)
        assert window.gui.services.host.facts is loaded, "what is loaded stays"
        note = window.row(REPO).note
        assert note is not None
        assert "download this one again" in note.text

    play(scenario)


def test_verify_finds_damage_and_repair_mends_it(play: Play, hub: FakeHub) -> None:
    async def scenario(window: HubWindow) -> None:
        await download(window)
        key = window.row(REPO).key
        window.gui.manager.act(key, "verify")
        await window.until(lambda: window.row(REPO).note is not None)
        note = window.row(REPO).note
        assert note is not None
        assert note.tone == "success"
        assert note.text.startswith(f"All {len(FILES)} files")
        path = Path(key) / "mtp.safetensors"
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        window.gui.manager.act(key, "verify")
        await window.until(lambda: window.row(REPO).state == "Damaged")
        note = window.row(REPO).note
        assert note is not None
        assert "mtp.safetensors" in note.text
        assert window.row(REPO).main == "repair"
        window.gui.manager.act(key, "repair")
        dialog = window.gui.window.findChildren(PlanDialog)[-1]
        await window.until(lambda: dialog.plan is not None)
        dialog.go.click()
        await window.until(lambda: window.row(REPO).state == "Ready")
        model = window.gui.models.model(key)
        assert model is not None
        assert verify_model(model).ok

    play(scenario)


def damage(model: Path) -> None:
    weights = next(model.glob("model-*.safetensors"))
    data = bytearray(weights.read_bytes())
    data[-1] ^= 255
    weights.write_bytes(data)


def test_a_row_that_gains_a_line_is_as_high_as_it_needs(play: Play) -> None:
    async def scenario(window: HubWindow) -> None:
        window.gui.window.resize(1100, 760)
        window.gui.manager.show_page()
        await download(window)
        row = window.row(REPO)
        damage(Path(row.key))
        window.gui.manager.act(row.key, "verify")
        await window.until(lambda: window.row(REPO).state == "Damaged")
        view = window.gui.manager.page.views[row.key]
        await window.until(lambda: view.height() >= view.heightForWidth(view.width()), 5)

    play(scenario)


def test_deleting_asks_first_and_says_what_it_freed(play: Play) -> None:
    async def scenario(window: HubWindow) -> None:
        await download(window)
        key = window.row(REPO).key
        window.gui.models.load(key, 1024)
        await window.until(lambda: window.row(REPO).state == "Loaded")
        window.gui.manager.act(key, "delete")
        assert window.has(REPO)
        answer(window, "Delete")
        await window.until(lambda: not window.has(REPO))
        assert any("was deleted" in text and "freed" in text for text in window.told)
        assert window.gui.services.host.facts is None

    play(scenario)
    assert not (user_paths().data / "models" / REPO).exists()


def test_another_folder_takes_the_models_along_or_keeps_them_listed(play: Play, tmp_path: Path) -> None:
    async def scenario(window: HubWindow) -> None:
        await download(window)
        first, second = tmp_path / "first", tmp_path / "second"
        old = window.row(REPO).key
        window.gui.manager.use_folder(first)
        answer(window, "Leave them")
        await window.until(lambda: str(first) in window.gui.manager.page.folder.text())
        assert window.row(REPO).key == old
        window.gui.models._adopt_folders(window.gui.models._hub)  # pyright: ignore[reportArgumentType]
        assert window.gui.services.preferences.value.models_folder == first
        assert [str(path) for path in window.gui.services.preferences.value.further_folders] == [
            str(Path(old).parents[1])
        ]
        window.gui.manager.use_folder(second)
        await window.until(lambda: str(second) in window.gui.manager.page.folder.text())

    play(scenario)


def test_the_settings_lead_to_the_choice_of_the_folder(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / "new"
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_: str(new))

    async def scenario(window: HubWindow) -> None:
        await download(window)
        gui = window.gui

        def press_choose() -> None:
            (dialog,) = gui.window.findChildren(SettingsDialog)
            field = next(e for e in dialog.findChildren(QLineEdit) if e.accessibleName() == "Models folder")
            choose = next(b for b in field.parentWidget().findChildren(QPushButton) if b.text() == "Choose…")
            choose.click()

        QTimer.singleShot(0, gui.window, press_choose)
        gui.window.show_settings()
        assert gui.window.stack.currentWidget() is gui.manager.page
        answer(window, "Move them")
        await window.until(lambda: window.has(REPO) and window.row(REPO).key == str(new / REPO))

    play(scenario)


def test_a_folder_that_cannot_be_written_is_refused(play: Play, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    async def scenario(window: HubWindow) -> None:
        before = window.gui.manager.page.folder.text()
        window.gui.manager.use_folder(tmp_path / "file" / "models")
        await window.until(lambda: "cannot be written" in window.gui.manager.page.message.text())
        assert window.gui.manager.page.folder.text() == before

    play(scenario)


def test_models_move_with_the_folder(play: Play, tmp_path: Path) -> None:
    async def scenario(window: HubWindow) -> None:
        await download(window)
        window.gui.manager.use_folder(tmp_path / "new")
        answer(window, "Move them")
        await window.until(lambda: any("moved" in text for text in window.told))
        await window.until(lambda: window.row(REPO).key == str(tmp_path / "new" / REPO))
        assert window.row(REPO).state == "Ready"

    play(scenario)


def test_a_folder_that_is_gone_keeps_its_models_in_the_list(play: Play, tmp_path: Path) -> None:
    folder = tmp_path / "volume"
    (folder / "mine").mkdir(parents=True)
    for name, data in FILES.items():
        (folder / "mine" / name).write_bytes(data)

    async def scenario(window: HubWindow) -> None:
        window.gui.services.preferences.update(further_folders=(folder,))
        await window.until(lambda: window.has("mine"))
        folder.rename(tmp_path / "unplugged")
        window.gui.models.refresh()
        await window.until(lambda: window.row("mine").state == "Not there")
        assert window.row("mine").main == "look-again"
        (tmp_path / "unplugged").rename(folder)
        window.gui.manager.act(window.row("mine").key, "look-again")
        await window.until(lambda: window.row("mine").state == "Ready")
        assert "delete" not in window.row("mine").menu, "Inkstand did not put it there"

    play(scenario)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_demo_is_measured_loaded_and_its_buffers_are_released(
    loop: asyncio.AbstractEventLoop, hub: FakeHub
) -> None:
    import mlx.core as mx

    demo = demo_checkpoint()
    others = mx.get_active_memory()

    async def scenario(window: HubWindow) -> None:
        manager, models = window.gui.manager, window.gui.models
        row = window.row("Inkstand Demo")
        assert (row.state, row.main) == ("Loaded", None)
        held = mx.get_active_memory() - others
        ledger = manager.load(row.key)
        await window.until(ledger.go.isEnabled)
        assert ledger.estimate is not None
        seen = ledger.estimate.footprint
        assert seen.weights + seen.drafter <= held <= seen.weights + seen.drafter + 2**20
        ledger.close()
        models.unload()
        # The engine's thread drops the model first and MLX's cache after it.
        await window.until(lambda: mx.get_active_memory() - others < held / 100 > mx.get_cache_memory())
        assert window.row("Inkstand Demo").main == "load"
        # Short of memory, the same button asks for more.
        ledger = manager.load(row.key)
        await window.until(ledger.go.isEnabled)
        assert ledger.estimate is not None
        ledger.estimate.available = seen.weights
        ledger._show()
        assert ledger.go.text() == "Load anyway"
        assert "missing" in ledger.verdict.text()
        ledger.go.click()
        await window.until(lambda: window.row("Inkstand Demo").state == "Loaded")

    run_window(loop, hub, Checkpoint, scenario, demo=LoadRequest(demo, "Inkstand Demo"))
