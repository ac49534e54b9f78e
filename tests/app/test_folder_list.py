"""The further folders in the settings: adding one, taking one out by button and by key, what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog

from app.composition import Gui
from app.views.folder_list import FolderList
from app.views.settings_dialog import SettingsDialog

A, B, C = Path("/models/a"), Path("/models/b"), Path("/models/c")


@pytest.fixture
def dialog(gui: Gui) -> Iterator[SettingsDialog]:
    gui.services.preferences.update(further_folders=(A, B, C))
    made = SettingsDialog(gui.services.theme, gui.services.preferences, gui.window)
    made.open_section("Downloads")
    made.show()
    made.activateWindow()
    yield made
    made.close()
    made.deleteLater()


def shown(folders: FolderList) -> list[str]:
    return [folders.list.item(row).text() for row in range(folders.list.count())]


def test_the_chosen_folder_is_removed_and_no_other(gui: Gui, dialog: SettingsDialog) -> None:
    stored, folders = gui.services.preferences, dialog.further
    folders.list.setCurrentRow(1)
    QTest.mouseClick(folders.remove_button, Qt.MouseButton.LeftButton)
    assert stored.value.further_folders == (A, C)
    assert shown(folders) == [str(A), str(C)]
    assert folders.list.currentItem().text() == str(C), "the next one is chosen, for more to go"
    folders.setFocus()
    assert QApplication.focusWidget() is folders.list
    QTest.keyClick(folders.list, Qt.Key.Key_Delete)
    assert stored.value.further_folders == (A,)
    QTest.keyClick(folders.list, Qt.Key.Key_Delete)
    assert stored.value.further_folders == ()
    assert not folders.list.isVisible()
    assert not folders.remove_button.isVisible()
    assert QApplication.focusWidget() is folders.add_button, "the keyboard goes on from there"


def test_a_folder_is_added_once(gui: Gui, dialog: SettingsDialog, monkeypatch: pytest.MonkeyPatch) -> None:
    stored, folders = gui.services.preferences, dialog.further
    answers = iter(["/models/d", "/models/a", ""])
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_args: next(answers))
    folders.add_button.click()
    assert stored.value.further_folders == (A, B, C, Path("/models/d"))
    assert folders.list.currentItem().text() == "/models/d"
    folders.add_button.click()
    assert stored.value.further_folders == (A, B, C, Path("/models/d"))
    assert folders.list.currentItem().text() == str(A)
    folders.add_button.click()  # and the choice is cancelled
    assert len(shown(folders)) == 4


def test_screen_readers_hear_what_is_added_and_removed(dialog: SettingsDialog) -> None:
    folders = dialog.further
    assert [w.accessibleName() for w in (folders.list, folders.add_button, folders.remove_button)] == [
        "Further folders",
        "Further folders: add one",
        "Further folders: remove the chosen one",
    ]
