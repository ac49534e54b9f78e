"""The widgets of the model manager: names, keyboard, contrast, figures beyond 32 bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QComboBox,
    QFileDialog,
    QLabel,
    QLineEdit,
    QProgressBar,
    QTreeWidget,
    QWidget,
)
from test_window import ink

from app import scripted_models as scripted
from app.composition import Gui
from app.model_rows import rows_of
from app.theme import Theme
from app.views.models.ledger_dialog import LedgerDialog
from app.views.models.page import ModelsPage
from app.views.models.plan_dialog import PlanDialog
from engine.errors import UserError
from engine.hub.errors import GatedError


def filled(page: ModelsPage) -> ModelsPage:
    page.show_folder(Path("/models"), 412_000_000_000)
    page.show_rows(rows_of(scripted.shelf(scripted.download("stalled", 0.43, reason="No data is arriving."))))
    return page


def plan_dialog(theme: Theme, kind: str = "whole", **values: int) -> PlanDialog:
    made = scripted.plan(kind, **values)  # pyright: ignore[reportArgumentType]
    return PlanDialog(
        theme, "a/b", "whole", ask=scripted.answer_with(made), folder_of=lambda _: Path("/m"), memory=scripted.MEMORY
    )


def ledger(theme: Theme, available: int, context: int = 8192, machine: int = scripted.MEMORY) -> LedgerDialog:
    def ask(done: object) -> object:
        done(scripted.estimate(available, machine))  # pyright: ignore[reportCallIssue]
        return lambda: None

    return LedgerDialog(theme, "m", ask=ask, context_for=lambda _: context)  # pyright: ignore[reportArgumentType]


def controls(root: QWidget) -> list[QWidget]:
    kinds = (QAbstractButton, QLineEdit, QComboBox, QProgressBar, QTreeWidget)
    return [widget for kind in kinds for widget in root.findChildren(kind) if not widget.isHidden()]


def test_every_control_has_a_name(gui: Gui) -> None:
    gui.manager.show_page()
    page = filled(gui.manager.page)
    page.views[str(scripted.HOME / scripted.MXFP4)].files_button.click()
    for widget in (*controls(page), gui.manager.bar, gui.window.toolbar.head_button):
        name = widget.accessibleName() or (widget.text() if isinstance(widget, QAbstractButton) else "")
        assert name, widget
    mains = [view.main.accessibleName() for view in page.views.values() if not view.main.isHidden()]
    assert len(mains) == len(set(mains)), "which model a button belongs to"


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_what_is_painted_is_readable(gui: Gui, qapp: QApplication, mode: str) -> None:
    gui.manager.show_page()
    filled(gui.manager.page)
    gui.services.preferences.update(theme="dark" if mode == "light" else "light")
    qapp.processEvents()
    gui.services.preferences.update(theme=mode)
    qapp.processEvents()
    labels = [label for label in gui.manager.page.findChildren(QLabel) if label.isVisible() and label.text().strip()]
    assert len(labels) > 30
    for label in labels:
        assert ink(label) >= 4.0, label.text()


def test_the_page_is_reached_and_used_by_keyboard(gui: Gui) -> None:
    gui.window.menus.actions["models"].trigger()
    page = filled(gui.manager.page)
    assert page.isVisible()
    page.field.setFocus()
    seen: list[QWidget] = []
    widget: QWidget | None = page.field
    while widget is not None and widget not in seen:
        seen.append(widget)
        widget = widget.nextInFocusChain()
    order = [seen.index(view.main) for view in page.views.values() if not view.main.isHidden()]
    assert order == sorted(order)
    chosen: list[tuple[str, str]] = []
    page.chosen.disconnect()
    page.chosen.connect(lambda key, action: chosen.append((key, action)))
    view = page.views[str(scripted.HOME / scripted.MXFP4)]
    QTest.keyClick(view.main, Qt.Key.Key_Return)
    assert chosen == [(view.row.key, "pause")]  # pyright: ignore[reportOptionalMemberAccess]


def test_escape_goes_back_to_the_chat(gui: Gui) -> None:
    gui.manager.show_page()
    for widget in (gui.manager.page.field, next(iter(filled(gui.manager.page).views.values())).more):
        gui.manager.show_page()
        widget.setFocus()
        QTest.keyClick(widget, Qt.Key.Key_Escape)
        assert gui.window.stack.currentWidget() is gui.window.page


def test_rows_keep_their_widgets_and_the_focus(gui: Gui) -> None:
    page = filled(gui.manager.page)
    before = dict(page.views)
    page.show_rows(rows_of(scripted.shelf(scripted.download("downloading", 0.6))))
    assert all(page.views[key] is view for key, view in before.items())
    page.show_rows(rows_of(scripted.shelf()))
    assert str(scripted.HOME / scripted.MXFP4) not in page.views
    assert scripted.MXFP4 in page.views, "back in the catalog"


@pytest.mark.parametrize("width", [900, 1100, 1400])
def test_names_are_shown_whole_where_there_is_room_for_them_alone(gui: Gui, qapp: QApplication, width: int) -> None:
    gui.window.resize(width, 760)
    gui.manager.show_page()
    page = gui.manager.page
    page.show_rows(rows_of(replace(scripted.shelf(), memory=16_000_000_000)))
    for _ in range(3):
        qapp.processEvents()
    assert page.isVisible()
    for view in page.views.values():
        shown = QLabel.text(view.title)
        room = view.width() - view.size_label.width() - view.main.width() - view.more.width() - 32
        assert shown == view.title.full or view.title.sizeHint().width() > room, shown


def test_counts_beyond_32_bits_reach_the_eye(theme: Theme) -> None:
    dialog = plan_dialog(theme)
    emitted: list[object] = []
    dialog.accepted_plan.connect(emitted.append)
    assert "170 GB to fetch" in dialog.status.text()
    assert "412 GB free" in dialog.space_text.text()
    dialog.go.click()
    assert emitted[0].total == dialog.plan.total > 2**37  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
    page = ModelsPage(theme)
    filled(page)
    view = page.views[str(scripted.HOME / scripted.MXFP4)]
    assert view.meter.value() == 429
    assert "60.3 GB of 140 GB" in view.detail.text()
    page.show_folder(Path("/m"), 2**41)
    assert "2.20 TB free" in page.folder.text()


def test_the_plan_says_what_is_left_out_and_what_is_missing(theme: Theme) -> None:
    dialog = plan_dialog(theme, have=1)
    texts = [dialog.files.topLevelItem(i).text(2) for i in range(dialog.files.topLevelItemCount())]
    assert "left out: code" in texts
    assert "there" in texts
    assert dialog.go.text() == "Continue"
    short = plan_dialog(theme, free=96_000_000_000)
    assert not short.go.isEnabled()
    assert "76.5 GB are missing" in short.space_text.text()


def test_an_address_that_was_pasted_is_shown_as_the_name_that_it_holds(
    theme: Theme, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def ask(repo: str, _kind: object, folder: Path, _done: object) -> object:
        asked.append(folder)
        return lambda: None

    dialog = PlanDialog(
        theme, "https://huggingface.co/a/b/tree/dev", "whole", ask=ask, folder_of=lambda name: Path("/m") / name
    )  # pyright: ignore[reportArgumentType]
    assert dialog.title.text() == "Download a/b at dev"
    assert dialog.repo_name == "a/b"
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_: str(tmp_path))
    dialog.change.click()
    assert asked == [Path("/m/a/b"), tmp_path / "b"]


def test_a_plan_with_everything_there_offers_to_close(theme: Theme) -> None:
    dialog = plan_dialog(theme, "head", have=2)
    started: list[object] = []
    dialog.accepted_plan.connect(started.append)
    dialog.show()
    assert dialog.status.text().startswith("Everything is here: 4.46 GB  ·  2 files")
    assert dialog.go.text() == "Close"
    shown = [w for w in (dialog.cancel_button, dialog.promise, dialog.space, dialog.space_text) if w.isVisible()]
    assert shown == []
    dialog.go.click()
    assert not dialog.isVisible()
    assert started == []


def test_a_plan_with_everything_there_but_unknown_offers_to_verify(theme: Theme) -> None:
    made = scripted.plan("head", have=2)
    files = (replace(made.files[0], presence="unchecked"), *made.files[1:])
    ask = scripted.answer_with(replace(made, files=files))
    dialog = PlanDialog(theme, "a/b", "head", ask=ask, folder_of=lambda _: Path("/m"))
    started: list[object] = []
    dialog.accepted_plan.connect(started.append)
    dialog.show()
    assert dialog.status.text().startswith("Everything is here, 1 file still to be verified")
    assert (dialog.go.text(), dialog.cancel_button.isVisible(), dialog.promise.isVisible()) == ("Verify", True, False)
    dialog.go.click()
    assert len(started) == 1
    # The next plan of the same dialog may have something to fetch.
    dialog.show_plan(scripted.plan("whole"))
    dialog.show()
    assert (dialog.go.text(), dialog.promise.isVisible(), dialog.space.isVisible()) == ("Download", True, True)


def test_a_repository_without_a_model_is_refused_with_what_to_do(theme: Theme) -> None:
    made = replace(scripted.plan("whole"), unusable="Nothing in a/b can be loaded: it holds no .safetensors file.")
    ask = scripted.answer_with(replace(made, notes=(made.unusable or "",)))
    dialog = PlanDialog(theme, "a/b", "whole", ask=ask, folder_of=lambda _: Path("/m"))
    assert "it holds no .safetensors file." in dialog.status.text()
    assert "another checkpoint" in dialog.status.text()
    assert "safetensors" not in dialog.notes.text(), "said once"
    assert not dialog.go.isEnabled()
    started: list[object] = []
    dialog.accepted_plan.connect(started.append)
    QTest.keyClick(dialog, Qt.Key.Key_Return)
    assert not started


def test_a_late_answer_to_an_earlier_question_is_dropped(theme: Theme) -> None:
    waiting: list[object] = []

    def ask(_repo: str, kind: str, _folder: Path, done: object) -> object:
        waiting.append((kind, done))
        return lambda: None

    dialog = PlanDialog(theme, "a/b", "whole", ask=ask, folder_of=lambda _: Path("/m"))  # pyright: ignore[reportArgumentType]
    next(button for button in dialog.kinds.buttons() if button.text() == "MTP head only").click()
    assert [kind for kind, _ in waiting] == ["whole", "head"]  # pyright: ignore[reportGeneralTypeIssues]
    waiting[0][1](scripted.plan("whole"))  # pyright: ignore[reportIndexIssue]
    assert dialog.plan is None
    waiting[1][1](scripted.plan("head"))  # pyright: ignore[reportIndexIssue]
    assert dialog.plan is not None
    assert "160 MTP tensors" in dialog.notes.text()
    waiting[1][1](GatedError("It is gated.", "Accept."))  # pyright: ignore[reportIndexIssue]
    assert dialog.error_button.text() == "Open its page"
    assert not dialog.go.isEnabled()


def test_the_ledger_adds_up_and_follows_the_context(theme: Theme) -> None:
    dialog = ledger(theme, 171_000_000_000)
    assert (dialog.go.text(), dialog.tokens) == ("Load", 8192)
    before = dialog.figures["cache"].text()
    dialog.context.setCurrentIndex(dialog.context.findData(1048576))
    dialog.context.activated.emit(dialog.context.currentIndex())
    assert dialog.figures["cache"].text() != before
    assert dialog.go.text() == "Load anyway", "a long context does not fit any more"
    chosen: list[int] = []
    dialog.chosen.connect(chosen.append)
    dialog.go.click()
    assert chosen == [1048576]


@pytest.mark.parametrize(
    ("available", "machine", "said"),
    [
        (158_500_000_000, scripted.MEMORY, "16\u2009384 tokens of context fit; closing other programs"),
        (118_000_000_000, scripted.MEMORY, "No context is short enough: close other programs, or choose"),
        (60_000_000_000, 64_000_000_000, "No context is short enough for this machine: choose a smaller checkpoint"),
    ],
)
def test_the_ledger_advises_what_helps(theme: Theme, available: int, machine: int, said: str) -> None:
    dialog = ledger(theme, available, 1_048_576, machine)
    assert "are missing." in dialog.verdict.text()
    assert said in dialog.verdict.text()
    assert "shorter context" not in dialog.verdict.text()


def test_the_ledger_without_figures_explains(theme: Theme) -> None:
    def ask(done: object) -> object:
        done(UserError("config.json is missing.", "Download it."))  # pyright: ignore[reportCallIssue]
        return lambda: None

    dialog = LedgerDialog(theme, "m", ask=ask, context_for=lambda most: most)  # pyright: ignore[reportArgumentType]
    assert "config.json is missing. Download it." in dialog.status.text()
    assert not dialog.go.isEnabled()
