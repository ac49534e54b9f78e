"""Settings of one chat: kept with it, falling back to the settings, shown as what they are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QAbstractSpinBox, QComboBox, QDoubleSpinBox, QSpinBox
from test_window import done, type_and_send

from app.composition import Gui
from app.scripted import Script, scripted_loader
from app.views.chat_settings import ChatSettingsDialog

if TYPE_CHECKING:
    from conftest import Opened


def opened_dialog(gui: Gui) -> ChatSettingsDialog:
    gui.window.toolbar.settings_button.click()
    dialog = gui.window.findChild(ChatSettingsDialog)
    assert dialog is not None
    return dialog


def field(dialog: ChatSettingsDialog, name: str) -> QAbstractSpinBox:
    return next(box for box in dialog.form.findChildren(QAbstractSpinBox) if box.accessibleName() == name)


def change(dialog: ChatSettingsDialog, name: str, value: float) -> None:
    box = field(dialog, name)
    assert isinstance(box, QSpinBox | QDoubleSpinBox)
    box.setValue(value)  # pyright: ignore[reportArgumentType]
    box.editingFinished.emit()


def test_a_chats_own_values_are_kept_with_it_and_used(opened: Opened, script: Script, wait) -> None:
    gui = opened(scripted_loader(script))
    dialog = opened_dialog(gui)
    assert not dialog.reset.isEnabled()
    change(dialog, "Temperature", 0.7)
    change(dialog, "Top k", 40)
    change(dialog, "Longest answer", 12)
    change(dialog, "Seed", 5)
    effort = dialog.form.findChild(QComboBox)
    assert effort is not None
    effort.setCurrentIndex(effort.findData("low"))
    effort.activated.emit(effort.currentIndex())
    dialog.prompt.setPlainText("Be brief.")
    assert dialog.state.text().startswith("5 ")
    dialog.accept()
    assert gui.window.toolbar.settings_button.accessibleName() == "Chat settings, changed for this chat"
    assert "Low" in gui.window.toolbar.effort_button.accessibleName()
    type_and_send(gui, "one")
    wait(lambda: done(gui))
    answer = gui.services.chat.path[-1]
    sampling = answer.options["sampling"]
    assert (sampling["temperature"], sampling["top_k"], sampling["max_tokens"], sampling["seed"]) == (0.7, 40, 12, 5)
    assert sampling["top_p"] == 0.95
    assert answer.finish_reason == "length"
    assert answer.options["effort"] == "low"
    assert gui.services.chat.system_prompt == "Be brief."
    chat = gui.services.chat.chat
    assert chat is not None
    # Another chat has the settings' values; this one still has its own after a restart.
    gui.window.new_chat()
    assert gui.services.chat.own_settings == {}
    assert gui.window.toolbar.settings_button.accessibleName() == "Chat settings"
    opened.close(gui)
    again = opened(scripted_loader(script))
    again.window.chats.open(chat.id)
    assert again.services.chat.settings.sampling.temperature == 0.7
    assert again.services.chat.own_settings["max_tokens"] == 12


def test_what_is_not_changed_follows_the_settings_and_reset_gives_the_rest_back(gui: Gui, wait) -> None:
    type_and_send(gui, "one")
    wait(lambda: done(gui))
    dialog = opened_dialog(gui)
    change(dialog, "Top p", 0.5)
    change(dialog, "Temperature", 0.9)
    change(dialog, "Temperature", 0.0)
    assert list(gui.services.chat.own_settings) == ["top_p"], "what is as in the settings is not its own"
    assert dialog.state.text().startswith("1 ")
    dialog.prompt.setPlainText("Half a thought")
    dialog.reset.click()
    assert gui.services.chat.own_settings == {}
    box = field(dialog, "Top p")
    assert isinstance(box, QDoubleSpinBox)
    assert box.value() == 0.95
    assert dialog.prompt.toPlainText() == "Half a thought"
    dialog.accept()
    assert gui.services.chat.system_prompt == "Half a thought"
    sampling = gui.services.preferences.value.sampling
    gui.services.preferences.update(sampling=replace(sampling, top_p=0.8))
    assert gui.services.chat.settings.sampling.top_p == 0.8


def test_the_system_prompt_command_leads_to_its_field(gui: Gui) -> None:
    gui.window.menus.actions["system_prompt"].trigger()
    dialog = gui.window.findChild(ChatSettingsDialog)
    assert dialog is not None
    assert dialog.prompt.accessibleName() == "System prompt"
    dialog.reject()
