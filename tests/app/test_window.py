from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PySide6.QtCore import QSize, Qt, QTimer
from PySide6.QtGui import QColor, QFontMetrics, QGuiApplication, QImage, QPixmap
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QWidget,
)

from app.composition import Gui, choose_model, run
from app.display import NoDisplay, check_display
from app.engine_host import LoadRequest, OpenModel, Progress
from app.motion import system_reduces_motion
from app.power import SleepGuard, inhibitor
from app.screenshots import Look, Studio
from app.scripted import Said, Script, ScriptedModel, scripted_loader
from app.settings import Settings
from app.store.history import History
from app.theme import contrast
from app.views.chat.message import AssistantMessage
from app.views.chat.replay_dialog import ReplayDialog
from app.views.chat.user_message import UserMessage
from app.views.chat_settings import ChatSettingsDialog
from app.views.dialogs import TextDialog
from app.views.main_window import MainWindow
from app.views.menus import COMMANDS
from app.views.models.confirm import Confirm
from app.views.settings_dialog import SettingsDialog
from app.wording import DEFINITIONS
from engine.config import ModelConfig
from engine.errors import UserError
from engine.paths import demo_checkpoint, user_paths

if TYPE_CHECKING:
    from conftest import Opened

LONG = "Small pools hold the sky, starfish rest on silent stones, the sea breathes them in. " * 6


def type_and_send(gui: Gui, text: str) -> None:
    QTest.keyClicks(gui.window.page.composer.editor, text)
    QTest.keyClick(gui.window.page.composer.editor, Qt.Key.Key_Return)


def last_view(gui: Gui) -> AssistantMessage:
    page = gui.window.page
    answer = page.last_answer()
    assert answer is not None
    view = page.transcript.view(answer)
    assert isinstance(view, AssistantMessage)
    return view


def done(gui: Gui) -> bool:
    return not gui.services.queue.busy


def test_first_run_greets_with_three_prompts_that_can_be_tried(gui: Gui, wait) -> None:
    welcome = gui.window.page.welcome
    assert welcome.isVisible()
    assert "Inkstand Demo is ready" in [label.text() for label in welcome.findChildren(QLabel)]
    assert len(welcome.rows) == 3
    welcome.rows[0].click()
    wait(lambda: done(gui))
    assert not welcome.isVisible()
    assert gui.services.chat.path[0].content == welcome.rows[0].prompt


def test_typing_sending_and_the_finished_answer(gui: Gui, wait) -> None:
    type_and_send(gui, "A haiku, please")
    assert gui.window.page.composer.text == ""
    wait(lambda: done(gui))
    view = last_view(gui)
    assert "Small pools hold the sky," in view.body.plain_text()
    assert view.reasoning.head.text().startswith("Thought for")
    texts = [label.text() for label in view.findChildren(QLabel)]
    assert any("tok/round" in text and "TTFT" in text for text in texts)
    assert "MTP with as many drafts as pay, 4.0 a round" in texts
    panel = gui.window.panel
    assert "tokens / round" in panel.length.accessibleName()
    assert not panel.length.accessibleName().startswith("–")
    view._actions["copy"].click()
    assert QGuiApplication.clipboard().text() == view.message.content


def test_the_switch_has_three_states(opened: Opened, script: Script) -> None:
    gui = opened(scripted_loader(script))
    toolbar = gui.window.toolbar
    assert toolbar.switch.isChecked()
    assert toolbar.depth_button.isVisible()
    assert [action.text() for action in toolbar.depth_menu().actions()] == [
        "Auto",
        "1 draft",
        "2 drafts",
        "3 drafts",
        "4 drafts",
    ]
    toolbar.switch.click()
    assert not gui.services.host.drafting
    assert "off" in toolbar.switch.accessibleName()
    opened.close(gui)
    script.depths, script.head_reason = 0, "This checkpoint has no MTP head. Add it (4.5 GB)."
    gui = opened(scripted_loader(script))
    toolbar = gui.window.toolbar
    assert not toolbar.switch.isEnabled()
    assert toolbar.depth_button.isHidden()
    assert toolbar.reason.isVisible()
    assert toolbar.reason.text() == script.head_reason
    assert "not available" in toolbar.switch.accessibleName()
    gui.window.menus.actions["toggle_drafting"].trigger()
    assert not gui.services.host.drafting, "as it was left: a switch that is not available does nothing"


def test_flipping_the_switch_in_an_answer_keeps_the_text(gui: Gui, script: Script, wait) -> None:
    type_and_send(gui, "one")
    wait(lambda: done(gui))
    ids = gui.services.history.messages.trace(gui.services.chat.path[-1].id).token_ids
    script.rate = 150
    gui.services.chat.regenerate(gui.services.chat.path[-1].id)
    wait(lambda: gui.services.chat.running and len(gui.services.chat.running.live.rounds) > 3)
    gui.window.toolbar.switch.click()
    wait(lambda: gui.services.chat.running and gui.services.chat.running.live.rounds[-1].drafted == 0)
    script.rate = 0
    wait(lambda: done(gui))
    again = gui.services.history.messages.trace(gui.services.chat.path[-1].id)
    assert again.token_ids == ids
    assert {one.drafted for one in again.rounds} == {0, 4}


def test_depth_and_effort_menus_reach_the_engine(gui: Gui, wait) -> None:
    gui.window.toolbar.depth_menu().actions()[2].trigger()
    gui.window.toolbar.effort_menu().actions()[0].trigger()
    assert gui.window.toolbar.depth_button.text() == "Depth: 2"
    assert gui.window.toolbar.effort_button.text() == "Effort: None"
    type_and_send(gui, "one")
    wait(lambda: done(gui))
    answer = gui.services.chat.path[-1]
    assert answer.reasoning == ""
    assert answer.draft is not None
    assert answer.draft["block_size"] == 3
    assert gui.services.preferences.value.draft.depth == 2


def test_rounds_can_be_seen_and_read(gui: Gui, wait) -> None:
    type_and_send(gui, "one")
    wait(lambda: done(gui))
    view = last_view(gui)
    view._actions["rounds"].click()
    assert len(view.body.spans) > 5
    assert view._actions["rounds"].isChecked()
    shown: list[tuple[str, str]] = []
    gui.window.page.text_shown.disconnect()
    gui.window.page.text_shown.connect(lambda title, text: shown.append((title, text)))
    gui.window.menus.actions["rounds_as_text"].trigger()
    assert shown[0][1].startswith("Round ")
    assert "drafts accepted" in shown[0][1]
    gui.window.menus.actions["toggle_rounds"].trigger()
    assert not view.body.spans


def test_the_other_way_side_by_side(gui: Gui, wait) -> None:
    type_and_send(gui, "one")
    wait(lambda: done(gui))
    gui.window.menus.actions["replay"].trigger()
    dialog = gui.window.findChild(ReplayDialog)
    assert dialog is not None
    wait(lambda: dialog.difference.text().startswith("Equal, all"))
    assert dialog.right.body.source == dialog.left.body.source
    assert "tok/round" in dialog.left.figures.text()
    assert "tok/round" not in dialog.right.figures.text()
    assert "must say the same" in dialog.note.text()
    dialog.close()


def test_editing_in_place_makes_a_branch_to_go_back_from(gui: Gui, wait) -> None:
    type_and_send(gui, "first")
    wait(lambda: done(gui))
    gui.window.menus.actions["edit_last"].trigger()
    user = gui.window.page.transcript.view(gui.services.chat.path[0].id)
    assert isinstance(user, UserMessage)
    editor = user._editor
    assert editor is not None
    editor.setPlainText("second")
    QTest.keyClick(editor, Qt.Key.Key_Return)
    wait(lambda: done(gui))
    assert gui.services.chat.path[0].content == "second"
    view = gui.window.page.transcript.view(gui.services.chat.path[0].id)
    assert isinstance(view, UserMessage)
    assert view._branches.isVisible()
    view._branches._previous.click()
    assert gui.services.chat.path[0].content == "first"


def test_what_is_typed_stays_with_its_chat(gui: Gui, wait) -> None:
    type_and_send(gui, "one")
    wait(lambda: done(gui))
    chat = gui.services.chat.chat
    assert chat is not None
    QTest.keyClicks(gui.window.page.composer.editor, "half a thought")
    gui.window.new_chat()
    assert gui.window.page.composer.text == ""
    gui.window.chats.open(chat.id)
    assert gui.window.page.composer.text == "half a thought"


def test_the_sidebar_lists_searches_and_deletes_with_undo(gui: Gui, wait) -> None:
    for text in ("Tide pools", "Pancakes"):
        gui.window.new_chat()
        type_and_send(gui, text)
        wait(lambda: done(gui))
    sidebar = gui.window.sidebar

    def titles() -> list[str]:
        return [sidebar.model.index(i).data() for i in range(sidebar.model.rowCount())]

    assert titles() == ["Today", "Pancakes", "Tide pools"]
    sidebar.search.setText("tide")
    wait(lambda: titles()[0] == "Results")
    sidebar.search.clear()
    wait(lambda: titles()[0] == "Today")
    sidebar.list.setCurrentIndex(sidebar.model.index(2))
    assert gui.services.chat.path[0].content == "Tide pools"
    gui.window.menus.actions["delete_chat"].trigger()
    assert titles() == ["Today", "Pancakes"]
    assert gui.services.chat.chat is None
    toast = gui.window.page.toast
    assert toast.isVisible()
    toast._button.click()
    assert titles() == ["Today", "Pancakes", "Tide pools"]
    assert not toast.isVisible()


def test_a_search_without_a_hit_says_so(gui: Gui, wait) -> None:
    type_and_send(gui, "one")
    wait(lambda: not gui.services.queue.busy)
    sidebar = gui.window.sidebar
    assert not sidebar.nothing.isVisible()
    sidebar.search.setText("zebra")
    wait(sidebar.nothing.isVisible)
    sidebar.search.clear()
    wait(lambda: not sidebar.nothing.isVisible())
    assert sidebar.model.rowCount() > 0


def test_files_are_chosen_from_the_menu_too(gui: Gui, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes.txt").write_text("ink")
    chosen = ([str(tmp_path / "notes.txt")], "")
    monkeypatch.setattr("app.views.chat_commands.QFileDialog.getOpenFileNames", lambda *_: chosen)
    gui.manager.show_page()
    gui.window.menus.actions["attach_files"].trigger()
    assert gui.window.stack.currentWidget() is gui.window.page
    assert gui.window.page.composer.content == '<attachment name="notes.txt">\nink\n</attachment>\n\n'
    gui.window.page.composer.attach_button.click()
    assert gui.window.page.composer.content.count("notes.txt") == 2


def test_typing_ahead_is_answered_in_words(gui: Gui, script: Script, wait) -> None:
    script.rate = 5.0
    type_and_send(gui, "one")
    wait(lambda: gui.services.chat.running is not None)
    type_and_send(gui, "two")
    assert "can be sent when it is done" in gui.window.page.toast.accessibleName()
    assert gui.window.page.composer.text == "two"
    gui.services.chat.stop()
    wait(lambda: not gui.services.queue.busy)


def test_an_error_stands_in_its_message_with_a_button_that_cures_it(gui: Gui, script: Script, wait) -> None:
    script.failure = UserError("The context is full.", "Start a new chat.")
    type_and_send(gui, "one")
    wait(lambda: done(gui))
    callout = last_view(gui)._callout
    assert callout is not None
    assert callout.accessibleName() == "Error: The context is full. Start a new chat."
    callout._buttons[0].click()
    wait(lambda: done(gui))
    assert last_view(gui).message.state == "done"


def test_a_bug_offers_a_report_that_can_be_copied(gui: Gui, script: Script, wait) -> None:
    script.failure = ZeroDivisionError("in the model")
    type_and_send(gui, "one")
    wait(lambda: done(gui))
    callout = last_view(gui)._callout
    assert callout is not None
    assert [button.text() for button in callout._buttons] == ["Try again", "Show report"]
    gui.window.show_report(gui.services.queue.report(last_view(gui).message.id))
    dialog = gui.window.findChild(TextDialog)
    assert dialog is not None
    assert "ZeroDivisionError: in the model" in dialog.view.toPlainText()
    dialog.close()


def test_a_full_context_is_said(gui: Gui, script: Script, wait) -> None:
    script.context = 40
    script.answers = lambda _m: Said(LONG)
    gui.services.host.load(LoadRequest(Path("demo"), "Small"))
    wait(lambda: gui.services.host.facts)
    type_and_send(gui, "one")
    wait(lambda: done(gui))
    callout = last_view(gui)._callout
    assert callout is not None
    assert "context is full" in callout.accessibleName()
    new_chat, settings = callout._buttons
    sections: list[str] = []
    QTimer.singleShot(0, gui.window, lambda: sections.append(close_settings(gui)))
    settings.click()
    assert sections == ["Model"]
    new_chat.click()
    assert gui.services.chat.path == []


def close_settings(gui: Gui) -> str:
    """Closes the settings that are open; returns the section that they showed."""
    dialog = next(d for d in gui.window.findChildren(SettingsDialog) if d.isVisible())
    dialog.reject()
    return dialog.list.currentItem().text()


def test_an_answer_at_its_limit_leads_to_where_the_limit_is(gui: Gui, wait) -> None:
    sampling = replace(gui.services.preferences.value.sampling, max_tokens=4)
    gui.services.preferences.update(sampling=sampling)
    type_and_send(gui, "one")
    wait(lambda: done(gui))
    callout = last_view(gui)._callout
    assert callout is not None
    following: QWidget = last_view(gui).body.nextInFocusChain()
    while not (following.isVisible() and following.focusPolicy() & Qt.FocusPolicy.TabFocus):
        following = following.nextInFocusChain()
    assert following is callout._buttons[0], "Tab leads from the answer to its button"
    sections: list[str] = []
    QTimer.singleShot(0, gui.window, lambda: sections.append(close_settings(gui)))
    callout._buttons[0].click()
    assert sections == ["Sampling"]
    gui.services.chat.set_own("max_tokens", 5)
    callout._buttons[0].click()
    chat_settings = gui.window.findChild(ChatSettingsDialog)
    assert chat_settings is not None
    assert chat_settings.isVisible()
    chat_settings.close()


def test_a_model_that_cannot_be_loaded_says_why(opened: Opened, wait) -> None:
    def broken(_request: LoadRequest, _progress: Progress) -> OpenModel:
        raise UserError("model.safetensors is truncated.", "Download it again.")

    gui = opened(broken, loaded=False)
    label = gui.window.page.welcome._subtitle
    wait(lambda: "truncated" in label.text())
    assert "Download it again." in label.text()
    assert gui.window.toolbar.model_button.text() == "No model"
    type_and_send(gui, "hello")
    wait(lambda: done(gui))
    assert "No model is loaded" in (gui.services.chat.path[-1].error or "")


def test_loading_shows_its_progress_and_messages_wait_for_it(opened: Opened, script: Script, wait) -> None:
    script.load_seconds = 0.3
    gui = opened(scripted_loader(script), loaded=False)
    wait(lambda: gui.services.host.progress.fraction > 0.2)
    assert "Loading" in gui.window.toolbar.model_button.text()
    type_and_send(gui, "early")
    wait(lambda: gui.services.host.facts is not None)
    wait(lambda: done(gui))
    assert gui.services.chat.path[-1].state == "done"


# -- leaving and coming back ----------------------------------------------------------------------


def test_quitting_in_the_middle_saves_everything_and_comes_back(opened: Opened, script: Script, wait) -> None:
    script.rate, script.answers = 80, lambda _m: Said(LONG)
    gui = opened(scripted_loader(script))
    type_and_send(gui, "tell me")
    wait(lambda: len(gui.services.chat.path[-1].content) > 60)
    QTest.keyClicks(gui.window.page.composer.editor, "next thought")
    gui.window.toggle_sidebar()
    gui.window.resize(780, 700)
    said, answer = gui.services.chat.path[-1].content, gui.services.chat.path[-1].id
    assert opened.close(gui) < 5
    history = History.open(user_paths().data / "history.sqlite3")
    message = history.messages.get(answer)
    history.close()
    assert message.state == "stopped"
    assert message.content.startswith(said)
    assert LONG.startswith(message.content)
    again = opened(scripted_loader(script))
    assert [m.id for m in again.services.chat.path] == [answer - 1, answer]
    assert again.window.page.composer.text == "next thought"
    assert again.window.sidebar.isHidden()
    assert again.window.size() == QSize(780, 700)


def test_an_engine_that_hangs_does_not_keep_the_program(opened: Opened, script: Script, wait, monkeypatch) -> None:
    monkeypatch.setattr("app.composition.QUIT_S", 0.3)
    release: list[bool] = []

    class Hanging(ScriptedModel):
        def effort(self, name: str) -> float:
            while not release:
                time.sleep(0.01)
            return super().effort(name)

    gui = opened(lambda request, progress: Hanging(script, request, progress))
    type_and_send(gui, "one")
    wait(lambda: gui.services.queue.busy)
    began = time.monotonic()
    gui.window.request_quit()
    ended = asyncio.run(gui.shutdown())
    assert time.monotonic() - began < 2
    assert not ended
    release.append(True)


def test_closing_the_window_quits_except_where_the_dock_keeps_it(gui: Gui) -> None:
    asked: list[int] = []
    gui.window.quit_requested.connect(lambda: asked.append(1))
    gui.window._quit_on_close = False
    gui.window.close()
    assert (asked, gui.window.isVisible()) == ([], False)
    gui.window.show()
    gui.window._quit_on_close = True
    gui.window.close()
    assert asked == [1]


def test_damaged_window_state_is_ignored(gui: Gui) -> None:
    for state in (b"", b"{", b"[]", json.dumps({"geometry": "x"}).encode()):
        assert gui.window.restore_state(state) is None


def test_the_whole_program_runs_and_ends(qapp: QApplication, script: Script) -> None:
    script.rate, script.answers = 100, lambda _m: Said(LONG)
    seen: list[str] = []

    def window() -> MainWindow:
        return next(w for w in qapp.topLevelWidgets() if isinstance(w, MainWindow))

    def type_prompt() -> None:
        QTest.keyClicks(window().page.composer.editor, "tell me")
        QTest.keyClick(window().page.composer.editor, Qt.Key.Key_Return)

    def leave() -> None:
        seen.append(window().page.transcript.messages[-1].state)
        window().close()

    QTimer.singleShot(400, type_prompt)
    QTimer.singleShot(1200, leave)
    began = time.monotonic()
    assert run(["-m", "."], loader=scripted_loader(script)) == 0
    assert time.monotonic() - began < 6
    assert seen == ["streaming"]
    history = History.open(user_paths().data / "history.sqlite3")
    (chat,) = history.chats.list()
    path = history.messages.path(chat.id)
    history.close()
    assert path[-1].state == "stopped"
    assert path[-1].content


# -- accessibility --------------------------------------------------------------------------------


def controls(root: QWidget) -> list[QWidget]:
    kinds = (QAbstractButton, QLineEdit, QPlainTextEdit, QComboBox, QAbstractSpinBox)
    return [w for w in root.findChildren(QWidget) if isinstance(w, kinds) and not w.objectName().startswith("qt_")]


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_every_control_has_a_name_and_is_reached_by_the_keyboard(gui: Gui, wait, mode: str) -> None:
    gui.services.preferences.update(theme=mode)
    type_and_send(gui, "one")
    wait(lambda: done(gui))
    settings = SettingsDialog(gui.services.theme, gui.services.preferences, gui.window)
    chat_settings = gui.window.chats.show_settings()
    gui.window.page.find_bar.open_bar()
    for control in [*controls(gui.window), *controls(settings), *controls(chat_settings)]:
        assert control.accessibleName() or getattr(control, "text", str)(), control
        if not isinstance(control.parent(), QAbstractSpinBox | QLineEdit | QComboBox):
            assert control.focusPolicy() & Qt.FocusPolicy.TabFocus, control.accessibleName()
    chat_settings.close()
    settings.deleteLater()


def test_tab_goes_through_the_messages_from_top_to_bottom(gui: Gui, wait, qapp: QApplication) -> None:
    type_and_send(gui, "one")
    wait(lambda: done(gui))
    gui.window.activateWindow()
    gui.window.page.transcript.setFocus()
    seen: list[str] = []
    for _ in range(12):
        QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Tab)
        focused = QApplication.focusWidget()
        seen.append(focused.accessibleName())
    assert seen.index("Your message") < seen.index("Edit and send again") < seen.index("Answer from Inkling")
    assert "Replay the other way" in seen


def ink(widget: QWidget) -> float:
    """The highest contrast of any pixel with the most frequent colour."""
    pixmap = QPixmap(widget.size())
    widget.render(pixmap)
    image = pixmap.toImage().convertToFormat(QImage.Format.Format_RGB32)
    data = bytes(image.constBits())
    counts = Counter(data[i : i + 4] for i in range(0, len(data), 4))
    names = [f"#{pixel[2]:02x}{pixel[1]:02x}{pixel[0]:02x}" for pixel, _ in counts.most_common()]
    return max(contrast(name, names[0]) for name in names)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_what_is_painted_is_readable(gui: Gui, wait, qapp: QApplication, mode: str) -> None:
    gui.services.preferences.update(theme="dark" if mode == "light" else "light")
    type_and_send(gui, "one")
    wait(lambda: done(gui))
    gui.services.preferences.update(theme=mode)
    qapp.processEvents()
    gui.window.page.find_bar.open_bar()
    QTest.keyClicks(gui.window.page.find_bar.field, "pools")
    wait(lambda: gui.window.page.finder.complete)
    assert last_view(gui).body.marks
    gui.window.chats.show_settings()
    qapp.processEvents()
    labels = [w for w in gui.window.findChildren(QLabel) if w.isVisible() and w.text().strip(" –")]
    assert len(labels) > 15
    for label in labels:
        assert ink(label) >= 4.0, label.text()  # anti-aliasing of thin strokes takes some of the 4.5
    assert QColor(gui.services.theme.tokens.window) == gui.window.grab().toImage().pixelColor(620, 700)


def test_panel_definitions_are_in_the_tooltips(gui: Gui) -> None:
    panel = gui.window.panel
    assert panel.length.toolTip() == DEFINITIONS["acceptance_length"]
    assert panel.rate.toolTip() == DEFINITIONS["decode_tps"]
    assert panel.bars.toolTip() == DEFINITIONS["per_position"]
    assert panel.verdict.toolTip() == DEFINITIONS["break_even"]


def test_a_model_without_a_head_has_no_empty_bars(gui: Gui, wait, script) -> None:
    panel = gui.window.panel
    gui.window.show()
    assert panel.bars.isVisible()
    assert panel.length.isVisible()
    script.depths, script.head_reason = 0, "This checkpoint has no MTP head."
    gui.services.host.load(LoadRequest(Path("plain"), "Plain"))
    wait(lambda: gui.services.host.facts is not None and gui.services.host.facts.name == "Plain")
    assert not panel.bars.isVisible()
    assert not panel.length.isVisible()
    assert panel.rate.isVisible()
    assert "rounds" not in panel.verdict.text()
    type_and_send(gui, "one")
    wait(lambda: done(gui))
    assert panel.verdict.text() == "Plain decoding"
    assert "no MTP head" in panel.break_even.text()


def test_the_pictures_speak_of_the_bundled_demo(qapp: QApplication, tmp_path: Path) -> None:
    studio = Studio(tmp_path, Look("light", 1))
    try:
        demo = ModelConfig.from_directory(demo_checkpoint())
        facts = studio.s.host.facts
        assert facts is not None
        assert demo.mtp is not None
        assert (facts.context, facts.depths) == (demo.text.max_positions, demo.mtp.depths)
    finally:
        studio.close()


def test_larger_type_cuts_nothing_off(gui: Gui, wait) -> None:
    type_and_send(gui, "one")
    wait(lambda: done(gui))
    head = last_view(gui).reasoning.head
    settings = SettingsDialog(gui.services.theme, gui.services.preferences, gui.window)
    gui.services.preferences.update(font_size=20)
    font = gui.services.theme.font(-1)
    wait(lambda: gui.window.page.transcript.view(gui.services.chat.path[-1].id))
    figures = last_view(gui)._figures
    last_view(gui).height_for(300)
    assert figures.heightForWidth(figures.width()) <= figures.height()
    assert head.width() >= 20 + QFontMetrics(font).horizontalAdvance(head.text())
    longest = max(QFontMetrics(settings.list.font()).horizontalAdvance(s) for s in ("Downloads", "Shortcuts"))
    assert settings.list.width() >= longest + 60  # icon and paddings
    settings.deleteLater()


def test_figures_do_not_change_the_width_of_anything(gui: Gui, wait) -> None:
    before = [w.geometry().width() for w in (gui.window.panel, gui.window.page, gui.window.sidebar)]
    type_and_send(gui, "one")
    wait(lambda: done(gui))
    assert before == [w.geometry().width() for w in (gui.window.panel, gui.window.page, gui.window.sidebar)]


def test_every_command_has_a_handler_and_no_two_share_a_key(gui: Gui) -> None:
    keys = [command.keys for command in COMMANDS if command.keys]
    assert len(keys) == len(set(keys))
    assert set(gui.window.menus.actions) == {command.name for command in COMMANDS}


# -- settings -------------------------------------------------------------------------------------


def test_settings_hold_at_once_and_wrong_ones_not_at_all(gui: Gui) -> None:
    preferences = gui.services.preferences
    dialog = SettingsDialog(gui.services.theme, preferences, gui.window)
    sizes = [box for box in dialog.findChildren(QAbstractSpinBox) if box.accessibleName() == "Font size"]
    sizes[0].setValue(16)  # pyright: ignore[reportAttributeAccessIssue]
    sizes[0].editingFinished.emit()
    assert gui.services.theme.base == 16
    edits = {edit.accessibleName(): edit for edit in dialog.findChildren(QLineEdit)}
    edits["Hub address"].setText("not an address")
    edits["Hub address"].editingFinished.emit()
    assert preferences.value.endpoint is None
    assert gui.window.page.toast.isVisible()
    edits["Hub address"].setText("https://mirror.example")
    edits["Hub address"].editingFinished.emit()
    assert preferences.value.endpoint == "https://mirror.example"
    dialog.close()
    dialog.deleteLater()


@pytest.fixture
def token_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    return tmp_path / "token"


def test_a_token_is_stored_once_the_hub_accepts_it_and_can_be_forgotten(gui: Gui, wait, token_file: Path) -> None:
    def check(token: str, _endpoint: str | None) -> str:
        if token != "hf_good":
            raise UserError("The hub does not accept the token.", "Make another.")
        return "ada"

    dialog = SettingsDialog(gui.services.theme, gui.services.preferences, gui.window, check_token=check)
    token = dialog.token
    assert token.state.text() == "No token is stored."
    assert not token.check_button.isEnabled()
    assert not token.forget_button.isEnabled()
    for typed, said in (("hf_bad", "does not accept"), ("hf_good", "It belongs to ada and is stored.")):
        token.field.setText(typed)
        assert token.check_button.text() == "Store"
        QTest.keyClick(token.field, Qt.Key.Key_Return)
        wait(lambda said=said: said in token.state.text())
        assert token_file.exists() == (typed == "hf_good")
    assert token.field.text() == ""
    token.check_button.click()
    wait(lambda: token.state.text() == "It belongs to ada.")
    dialog.deleteLater()

    dialog = SettingsDialog(gui.services.theme, gui.services.preferences, gui.window, check_token=check)
    assert dialog.token.state.text() == "A token is stored."
    dialog.token.forget_button.click()
    (question,) = dialog.findChildren(Confirm)
    assert token_file.exists(), "nothing is forgotten without a word"
    question.buttons[0].click()
    assert not token_file.exists()
    assert dialog.token.state.text() == "No token is stored."
    assert not dialog.token.forget_button.isEnabled()
    dialog.deleteLater()


def test_a_token_file_that_cannot_be_changed_is_told_in_the_settings(gui: Gui, wait, token_file: Path) -> None:
    dialog = SettingsDialog(gui.services.theme, gui.services.preferences, gui.window, check_token=lambda *_: "ada")
    token_file.mkdir()
    dialog.token.field.setText("hf_good")
    dialog.token.check_button.click()
    wait(lambda: "could not be stored" in dialog.token.state.text())
    assert dialog.token.field.text() == "hf_good"
    dialog.deleteLater()


# -- starting -------------------------------------------------------------------------------------


def test_no_display_is_found_out_before_qt_is_asked() -> None:
    with pytest.raises(NoDisplay, match="DISPLAY is not set"):
        check_display({}, "linux")
    with pytest.raises(NoDisplay):
        check_display({"DISPLAY": ":4711"}, "linux")
    check_display({}, "darwin")
    check_display({"QT_QPA_PLATFORM": "offscreen"}, "linux")
    check_display({"DISPLAY": "remote:0"}, "linux")


def test_which_model_is_loaded_first(tmp_path: Path) -> None:
    named = choose_model(["-m", str(tmp_path)], Settings())
    assert isinstance(named, LoadRequest)
    assert named.directory == tmp_path.resolve()
    last = choose_model([], Settings(last_model=str(tmp_path), context_length=1024))
    assert isinstance(last, LoadRequest)
    assert (last.directory, last.context) == (tmp_path, 1024)
    with pytest.raises(UserError, match="--wrong"):
        choose_model(["--wrong"], Settings())


def test_reduced_motion_is_asked_of_the_system() -> None:
    def fails(_command: Sequence[str]) -> str:
        raise FileNotFoundError

    assert system_reduces_motion("darwin", lambda _command: "1\n")
    assert not system_reduces_motion("darwin", lambda _command: "0\n")
    assert system_reduces_motion("linux", lambda _command: "false\n")
    assert not system_reduces_motion("linux", fails)
    assert not system_reduces_motion("other", fails)


def test_sleep_is_inhibited_only_while_working() -> None:
    assert inhibitor("darwin", lambda _name: None)[0].endswith("caffeinate")  # pyright: ignore[reportOptionalSubscript]
    assert inhibitor("linux", lambda _name: None) is None
    guard = SleepGuard(("sleep", "30"))
    guard.set_active(True)
    guard.set_active(True)
    assert guard.active
    guard.set_active(False)
    assert not guard.active
    missing = SleepGuard(("/no/such/program",))
    missing.set_active(True)
    assert not missing.active
