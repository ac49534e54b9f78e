"""The window's actions with their shortcuts: a menu bar on a Mac, one menu in the toolbar elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMainWindow, QMenu


@dataclass(frozen=True, slots=True)
class Command:
    """One thing the user can ask for. `keys` in Qt's portable form, where Ctrl is Cmd on a Mac."""

    name: str
    title: str
    keys: str = ""
    other_keys: str = ""
    """A second shortcut for the same."""


SEPARATOR = None
MENUS: tuple[tuple[str, tuple[Command | None, ...]], ...] = (
    (
        "File",
        (
            Command("new_chat", "New chat", "Ctrl+N"),
            SEPARATOR,
            Command("import_chats", "Import…", "Ctrl+O"),
            Command("copy_chat", "Copy chat as Markdown", "Ctrl+Shift+C"),
            Command("export_chat", "Export chat…", "Ctrl+S"),
            Command("export_all", "Export all chats…"),
            SEPARATOR,
            Command("models", "Models…", "Ctrl+Shift+M"),
            Command("preferences", "Settings…", "Ctrl+,"),
            Command("close_window", "Close window", "Ctrl+W"),
            Command("quit", "Quit Inkstand", "Ctrl+Q"),
        ),
    ),
    (
        "Chat",
        (
            Command("find", "Find in chat", "Ctrl+F"),
            Command("find_next", "Find next", "Ctrl+G"),
            Command("find_previous", "Find previous", "Ctrl+Shift+G"),
            Command("search_chats", "Search all chats", "Ctrl+Shift+F"),
            SEPARATOR,
            Command("focus_composer", "Write a message", "Ctrl+L"),
            Command("attach_files", "Attach files…", "Ctrl+Shift+A"),
            Command("chat_settings", "Chat settings…", "Ctrl+Shift+,"),
            Command("system_prompt", "System prompt…", "Ctrl+Shift+P"),
            SEPARATOR,
            Command("stop", "Stop", "Ctrl+."),
            Command("regenerate", "Regenerate", "Ctrl+R"),
            Command("edit_last", "Edit last message", "Ctrl+E"),
            SEPARATOR,
            Command("toggle_drafting", "Turn MTP on or off", "Ctrl+T"),
            Command("toggle_rounds", "Show rounds", "Ctrl+Shift+R"),
            Command("rounds_as_text", "Rounds as text…", "Ctrl+Shift+T"),
            Command("replay", "Replay the other way…", "Ctrl+Shift+O"),
            SEPARATOR,
            Command("rename_chat", "Rename chat", "F2"),
            Command("pin_chat", "Pin or unpin chat"),
            Command("duplicate_chat", "Duplicate chat", "Ctrl+D"),
            Command("delete_chat", "Delete chat", "Ctrl+Backspace"),
        ),
    ),
    (
        "View",
        (
            Command("toggle_sidebar", "Sidebar", "Ctrl+Alt+S"),
            Command("toggle_panel", "Statistics", "Ctrl+Alt+I"),
            SEPARATOR,
            Command("larger", "Larger text", "Ctrl++"),
            Command("smaller", "Smaller text", "Ctrl+-"),
            Command("normal_size", "Normal text size", "Ctrl+0"),
            SEPARATOR,
            Command("previous_chat", "Previous chat", "Ctrl+Shift+["),
            Command("next_chat", "Next chat", "Ctrl+Shift+]"),
        ),
    ),
    (
        "Help",
        (
            Command("help", "Inkstand help", "F1", "Ctrl+?"),
            Command("about", "About Inkstand"),
        ),
    ),
)
COMMANDS = tuple(command for _, commands in MENUS for command in commands if command is not None)


class Menus:
    """Makes the actions of a window and the menus that show them.

    Args:
        handlers: what each command does, by its name.
    """

    def __init__(self, window: QMainWindow, handlers: dict[str, Callable[[], object]]) -> None:
        missing = {command.name for command in COMMANDS} ^ handlers.keys()
        if missing:
            raise ValueError(f"commands and handlers differ: {sorted(missing)}")
        self.actions: dict[str, QAction] = {}
        for command in COMMANDS:
            action = QAction(command.title, window)
            action.setShortcuts([QKeySequence(keys) for keys in (command.keys, command.other_keys) if keys])
            action.triggered.connect(slot(handlers[command.name]))
            window.addAction(action)
            self.actions[command.name] = action
        self.actions["preferences"].setMenuRole(QAction.MenuRole.PreferencesRole)
        self.actions["quit"].setMenuRole(QAction.MenuRole.QuitRole)
        self.actions["about"].setMenuRole(QAction.MenuRole.AboutRole)
        if sys.platform == "darwin":
            for title, commands in MENUS:
                self._fill(window.menuBar().addMenu(title), commands)

    def popup(self, parent: QMainWindow) -> QMenu:
        """All menus as one."""
        menu = QMenu(parent)
        for title, commands in MENUS:
            self._fill(menu.addMenu(title), commands)
        return menu

    def _fill(self, menu: QMenu, commands: tuple[Command | None, ...]) -> None:
        for command in commands:
            if command is None:
                menu.addSeparator()
            else:
                menu.addAction(self.actions[command.name])


def slot(handler: Callable[[], object]) -> Callable[[bool], None]:
    """`handler` for `triggered`, which says whether the action is checked."""

    def triggered(_checked: bool) -> None:
        handler()

    return triggered
