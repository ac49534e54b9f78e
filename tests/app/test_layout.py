"""Nothing is cut off: every page at several widths, with and without the panel, in small and large type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtGui import QFontMetrics
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractScrollArea,
    QApplication,
    QLabel,
    QPushButton,
    QToolButton,
    QWidget,
)
from test_models_views import filled
from test_window import done, type_and_send

from app import scripted_models as scripted
from app.composition import Gui
from app.controllers.stats import PanelState
from app.engine_host import LoadRequest
from app.model_rows import rows_of
from app.scripted import Script
from app.views.arrangement import LEAST
from app.views.controls import TextButton
from app.views.labels import ElidedLabel
from app.views.settings_dialog import SettingsDialog
from engine.stats import GenerationStats


def visible(root: QWidget, kind: type[QWidget]) -> Iterator[QWidget]:
    yield from (widget for widget in root.findChildren(kind) if widget.isVisibleTo(root))


def cut(widget: QWidget, root: QWidget) -> str:
    """Why a widget cannot be seen in full; what is only scrolled out of sight can."""
    parent = widget.parentWidget()
    scrolled = False
    while parent is not None and widget is not root:
        left = widget.mapTo(parent, QPoint(0, 0)) if parent.isAncestorOf(widget) else QPoint(0, 0)
        if left.x() < 0 or left.x() + widget.width() > parent.width():
            return f"{left.x()}..{left.x() + widget.width()} outside of {type(parent).__name__} 0..{parent.width()}"
        scrolled = scrolled or isinstance(parent.parentWidget(), QAbstractScrollArea)
        if not scrolled and (left.y() < 0 or left.y() + widget.height() > parent.height()):
            return f"{left.y()}..{left.y() + widget.height()} outside of {type(parent).__name__} 0..{parent.height()}"
        if parent is root:
            break
        parent = parent.parentWidget()
    if isinstance(widget, QPushButton | TextButton) and not (isinstance(widget, TextButton) and widget.elides):
        wanted = widget.sizeHint()
        if widget.width() < wanted.width() or widget.height() < wanted.height():
            return f"{widget.width()} x {widget.height()} for {wanted.width()} x {wanted.height()}"
    if isinstance(widget, QLabel) and not isinstance(widget, ElidedLabel) and not widget.wordWrap():
        wanted = QFontMetrics(widget.font()).horizontalAdvance(widget.text())
        if widget.width() < wanted:
            return f"{widget.width()} for a text of {wanted}"
    return ""


def check(root: QWidget) -> None:
    for kind in (QAbstractButton, QLabel):
        for widget in visible(root, kind):
            if isinstance(widget, QToolButton):
                continue
            name = widget.accessibleName() or getattr(widget, "text", str)()
            assert not cut(widget, root), f"{name!r}: {cut(widget, root)}, at {root.width()} x {root.height()}"


def settle(qapp: QApplication) -> None:
    for _ in range(5):
        qapp.processEvents()
    QTest.qWait(20)


STATS = GenerationStats(
    prompt_tokens=123_456, cached_tokens=0, completion_tokens=512, drafted=400, accepted=300, rounds=100, near_ties=0,
    plain_steps=20, per_position=(1.0, 0.9, 0.8, 0.7), acceptance_length=4.0, acceptance_rate=0.75, ttft_s=12.5,
    prefill_tps=12_345.6, decode_tps=123.4, ms_per_round=100.1, ms_per_plain_step=42.5,
)  # fmt: skip
BUSY = PanelState(
    stats=STATS, rate=123.4, verdict="4.0 tokens/round, break-even 2.4: MTP is 1.67x faster", memory=151_000_000_000,
    context_used=123_968, context=1_048_576, truth="MTP with 4 drafts a round, as asked; 20 plain steps",
)  # fmt: skip


@pytest.mark.parametrize("base", [13, 20])
@pytest.mark.parametrize("panel", [True, False])
def test_no_button_is_cut_off_on_any_page(gui: Gui, qapp: QApplication, wait, base: int, panel: bool) -> None:
    window = gui.window
    gui.services.preferences.update(font_size=base)
    type_and_send(gui, "A question that takes a line of its own in the bubble at the right")
    wait(lambda: done(gui))
    if window.panel.isVisible() != panel:
        window.toggle_panel()
    filled(gui.manager.page)
    gui.manager.page.show_rows(rows_of(scripted.shelf(scripted.download("downloading", 0.43))))
    gui.manager.page.views[str(scripted.HOME / scripted.MXFP4)].files_button.setChecked(True)
    window.panel.show_state(BUSY)
    chat = gui.services.chat.chat
    assert chat is not None
    for show in (gui.manager.show_page, lambda: window.chats.open(chat.id), window.new_chat):
        show()
        for width in (1600, 1280, 1200, 1024, 900, 760, 640):
            window.resize(width, 700 if width > 640 else 480)
            settle(qapp)
            check(window)
            assert window.stack.width() >= window.arrangement.page_width
            room = window.arrangement.page_width + window.panel.width() < window.width()
            assert window.panel.isVisible() == (panel and room)
    if base == 13:
        assert window.width() == LEAST.width()


def test_the_toolbar_says_less_where_it_is_narrow(gui: Gui, qapp: QApplication, script: Script, wait) -> None:
    toolbar = gui.window.toolbar
    gui.window.resize(1200, 700)
    settle(qapp)
    assert (toolbar.depth_button.text(), toolbar.effort_button.text()) == ("Depth: Auto", "Effort: High")
    gui.window.resize(640, 480)
    settle(qapp)
    assert toolbar.settings_button.isVisible(), "what is left out is reached there"
    assert toolbar.switch.isVisible()
    script.depths, script.head_reason = 0, "This checkpoint has no MTP head, and its folder has a very long name."
    gui.services.host.load(LoadRequest(Path("demo"), "An organisation/with-a-checkpoint-of-a-long-name-4bit"))
    wait(lambda: gui.services.host.facts is not None)
    toolbar.offer_head("Add MTP head (4.46 GB)")
    settle(qapp)
    check(gui.window)
    assert toolbar.head_button.isVisible()
    gui.window.resize(1200, 700)
    settle(qapp)
    assert toolbar.reason.isVisible()
    check(gui.window)


def test_sidebar_or_panel_goes_where_both_do_not_fit_and_comes_back(gui: Gui, qapp: QApplication) -> None:
    window = gui.window
    window.resize(1200, 700)
    settle(qapp)
    assert window.sidebar.isVisible()
    assert window.panel.isVisible()
    window.resize(760, 700)
    settle(qapp)
    assert window.sidebar.isHidden()
    assert window.panel.isVisible()
    window.toggle_sidebar()
    settle(qapp)
    assert window.sidebar.isVisible(), "what was asked for last is shown"
    assert window.panel.isHidden()
    window.toggle_panel()
    assert window.panel.isVisible()
    window.resize(1200, 700)
    settle(qapp)
    assert window.sidebar.isVisible()
    assert window.panel.isVisible()
    window.toggle_panel()
    window.resize(760, 700)
    settle(qapp)
    assert window.sidebar.isVisible()


def test_a_row_takes_no_more_height_than_it_needs(gui: Gui, qapp: QApplication) -> None:
    gui.window.resize(1280, 800)
    gui.manager.show_page()
    page = gui.manager.page
    page.show_rows(rows_of(scripted.shelf()))
    settle(qapp)
    page.show_rows(rows_of(scripted.shelf(scripted.download("downloading", 0.43))))
    settle(qapp)
    for width in (1280, 700, 1280):
        gui.window.resize(width, 800)
        settle(qapp)
        for view in page.views.values():
            assert view.height() <= view.heightForWidth(view.width()) + 2, view.title.text()


@pytest.mark.parametrize("base", [13, 20])
def test_nothing_of_the_settings_is_cut_off(gui: Gui, qapp: QApplication, base: int) -> None:
    gui.services.preferences.update(font_size=base)
    dialog = SettingsDialog(gui.services.theme, gui.services.preferences, gui.window)
    dialog.show()
    for row in range(dialog.list.count()):
        dialog.list.setCurrentRow(row)
        for width, height in ((dialog.minimumSizeHint().width(), 420), (900, 700)):
            dialog.resize(width, height)
            settle(qapp)
            assert dialog.height() <= 700
            check(dialog)
    dialog.close()
    dialog.deleteLater()
    chat = gui.window.chats.show_settings()
    chat.reset.setEnabled(True)
    chat.state.set_text("3 differ.")
    for width in (chat.minimumSizeHint().width(), 900):
        chat.resize(width, 420)
        settle(qapp)
        check(chat)
    chat.close()
