"""The window: sidebar, pages under the toolbar, statistics; it wires controllers to views."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtGui import QCloseEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QApplication, QMainWindow, QStackedWidget

from app.controllers.answers import AnswerQueue
from app.controllers.chat import ChatController
from app.controllers.chats import ChatsController
from app.controllers.preferences import Preferences
from app.controllers.stats import StatsController
from app.crash import report
from app.engine_host import EngineHost
from app.hints import sentence_of
from app.store.history import History
from app.store.records import Chat, Message
from app.stylesheet import stylesheet
from app.theme import Theme
from app.views.about import AboutDialog
from app.views.answer_commands import AnswerCommands, run_dialog
from app.views.arrangement import Arrangement
from app.views.chat.page import ChatPage
from app.views.chat_commands import ChatCommands
from app.views.dialogs import TextDialog
from app.views.help_window import HelpWindow
from app.views.menus import Menus
from app.views.model_status import ModelStatus
from app.views.settings_dialog import CHOOSE_FOLDER, SettingsDialog
from app.views.sidebar import Sidebar
from app.views.stats.feed import StatsFeed
from app.views.stats.panel import StatsPanel
from app.views.toolbar import Toolbar
from app.views.window_state import WindowState, pack, unpack
from engine.errors import UserError


@dataclass(frozen=True, slots=True)
class Services:
    """What the window is made of."""

    theme: Theme
    history: History
    preferences: Preferences
    host: EngineHost
    queue: AnswerQueue
    chat: ChatController
    chats: ChatsController
    stats: StatsController


class MainWindow(QMainWindow):
    """Signals: quit_requested, models_wanted, models_folder_wanted.

    Args:
        quit_on_close: closing the window ends the program; on a Mac it stays in the Dock instead.
    """

    quit_requested = Signal()
    models_wanted = Signal()
    models_folder_wanted = Signal()

    def __init__(self, services: Services, *, quit_on_close: bool = sys.platform != "darwin") -> None:
        super().__init__()
        self._s = s = services
        self._quit_on_close = quit_on_close
        self._quitting = self._shown = False
        self.restyle()
        self.setWindowTitle("Inkstand")
        self.resize(1200, 800)
        self.sidebar = Sidebar(s.theme, self)
        self.toolbar = Toolbar(s.theme, self, menu=sys.platform != "darwin")
        self.page = ChatPage(s.theme, s.chat, self)
        self.panel = StatsPanel(s.theme, self)
        self.stack = QStackedWidget(self)
        """The pages; more of them may be added beside the chat."""
        self.stack.addWidget(self.page)
        self.arrangement = Arrangement(
            s.theme, self, sidebar=self.sidebar, toolbar=self.toolbar, pages=self.stack, panel=self.panel
        )
        self.chats = ChatCommands(
            window=self,
            theme=s.theme,
            history=s.history,
            chat=s.chat,
            chats=s.chats,
            queue=s.queue,
            page=self.page,
            sidebar=self.sidebar,
            failed=self.show_error,
        )
        self.model = ModelStatus(
            host=s.host,
            chat=s.chat,
            preferences=s.preferences,
            toolbar=self.toolbar,
            page=self.page,
            panel=self.panel,
            crashed=lambda error: self.show_report(report(error)),
        )
        self.answers = AnswerCommands(
            window=self,
            theme=s.theme,
            history=s.history,
            host=s.host,
            queue=s.queue,
            chat=s.chat,
            stats=s.stats,
            page=self.page,
        )
        self._feed = StatsFeed(
            stats=s.stats,
            host=s.host,
            history=s.history,
            chat=s.chat,
            queue=s.queue,
            panel=self.panel,
            say=lambda text: self.page.toast.say(text, seconds=12),
        )
        self.menus = Menus(self, self._handlers())
        self._connect()
        s.theme.changing.connect(self.restyle)

    def _connect(self) -> None:
        s, page = self._s, self.page
        self.sidebar.opened.connect(self._show_page)
        self.sidebar.new_chat.connect(self._show_page)
        self.sidebar.settings.connect(self.show_settings)
        self.toolbar.new_chat.connect(self.new_chat)
        self.toolbar.sidebar.connect(self.toggle_sidebar)
        self.toolbar.panel.connect(self.toggle_panel)
        self.toolbar.menu.connect(self._pop_menu)
        self.toolbar.chat_settings.connect(self.chats.show_settings)
        page.settings.connect(self.show_settings)
        page.chat_settings.connect(self.chats.show_settings)
        page.new_chat.connect(self.new_chat)
        for source in (s.chats.failed, s.chat.failed, page.failed, s.preferences.failed, s.queue.trouble):
            source.connect(self.show_error)
        s.chat.opened.connect(self._opened)

    def _handlers(self) -> dict[str, Callable[[], object]]:
        s, page, chats = self._s, self.page, self.chats
        return {
            "new_chat": self.new_chat,
            "models": self.models_wanted.emit,
            "import_chats": chats.import_chats,
            "export_chat": chats.export_current,
            "export_all": chats.export_all,
            "preferences": self.show_settings,
            "close_window": self.close,
            "quit": self.request_quit,
            "find": self._on_page(chats.find),
            "find_next": self._on_page(lambda: chats.find_step(1)),
            "find_previous": self._on_page(lambda: chats.find_step(-1)),
            "search_chats": self.search_chats,
            "chat_settings": chats.show_settings,
            "copy_chat": chats.copy_chat,
            "focus_composer": page.composer.editor.setFocus,
            "attach_files": self._on_page(chats.attach_files),
            "system_prompt": chats.edit_system_prompt,
            "stop": s.chat.stop,
            "regenerate": self.answers.regenerate_last,
            "edit_last": chats.edit_last,
            "toggle_drafting": self.model.toggle_drafting,
            "toggle_rounds": self.answers.toggle_rounds,
            "rounds_as_text": self.answers.rounds_as_text,
            "replay": self.answers.replay_last,
            "rename_chat": self.sidebar.rename_current,
            "pin_chat": chats.pin,
            "duplicate_chat": chats.duplicate_current,
            "delete_chat": chats.delete,
            "toggle_sidebar": self.toggle_sidebar,
            "toggle_panel": self.toggle_panel,
            "larger": lambda: self._scale(1),
            "smaller": lambda: self._scale(-1),
            "normal_size": lambda: s.preferences.update(font_size=13),
            "previous_chat": lambda: chats.step(-1),
            "next_chat": lambda: chats.step(1),
            "help": self.show_help,
            "about": self.show_about,
        }

    # -- looks --------------------------------------------------------------------------------

    def restyle(self) -> None:
        """Bring everything that Qt paints in line with the theme."""
        application = QApplication.instance()
        assert isinstance(application, QApplication)
        application.setPalette(self._s.theme.palette())
        application.setFont(self._s.theme.font())
        application.setStyleSheet(stylesheet(self._s.theme))

    def _scale(self, by: int) -> None:
        preferences = self._s.preferences
        preferences.update(font_size=max(9, min(28, preferences.value.font_size + by)))

    def _on_page(self, act: Callable[[], object]) -> Callable[[], None]:
        """`act`, on the page of the chat."""

        def show_and_act() -> None:
            self._show_page()
            act()

        return show_and_act

    def search_chats(self) -> None:
        self.arrangement.show_sidebar()
        self.chats.search()

    def toggle_sidebar(self, _on: bool = True) -> None:
        self.arrangement.toggle_sidebar()

    def toggle_panel(self, _on: bool = True) -> None:
        self.arrangement.toggle_panel()
        self._feed.refresh()

    def show_plots(self) -> None:
        """Complete the panel with what takes long to import; called after the first paint."""
        self.panel.show_plots()
        self._feed.refresh()

    def _pop_menu(self) -> None:
        button = self.toolbar.menu_button
        menu = self.menus.popup(self)
        menu.exec(button.mapToGlobal(QPoint(button.width() - menu.sizeHint().width(), button.height() + 2)))
        menu.deleteLater()

    def save_state(self) -> bytes:
        """Geometry, what is shown and which chat, for the settings."""
        chat = self._s.chat.chat
        return pack(
            WindowState(
                geometry=bytes(self.saveGeometry().data()),
                sidebar=self.arrangement.sidebar_wanted,
                panel=self.arrangement.panel_wanted,
                split=tuple(self.arrangement.splitter.sizes()),
                chat=None if chat is None else chat.id,
            )
        )

    def restore_state(self, packed: bytes) -> int | None:
        """Apply what `save_state` gave. Returns the chat that was open."""
        state = unpack(packed)
        if state is None:
            return None
        self.restoreGeometry(state.geometry)
        self.arrangement.restore(sidebar=state.sidebar, panel=state.panel, sizes=state.split)
        return state.chat

    # -- chats and answers --------------------------------------------------------------------

    def new_chat(self) -> None:
        self._show_page()
        self.chats.new()

    def _show_page(self) -> None:
        self.stack.setCurrentWidget(self.page)

    def _opened(self, chat: Chat | None, _path: Sequence[Message]) -> None:
        self.sidebar.select(None if chat is None else chat.id)
        history = self._s.history
        # A notice goes away; this stays.
        kept = " (read-only)" if history.read_only else "" if history.database.path else " (chats are not kept)"
        named = "New chat" if chat is None and kept else "" if chat is None else chat.display_title
        # The program's name comes last: where it does not, Qt adds it on Linux and Windows.
        self.setWindowTitle(f"{named}{kept} – Inkstand" if named else "Inkstand")
        self.model.show_switches()

    # -- messages -----------------------------------------------------------------------------

    def show_settings(self, section: str = "") -> None:
        """The settings, at one of their sections."""
        dialog = SettingsDialog(self._s.theme, self._s.preferences, self)
        dialog.open_section(section)
        if run_dialog(dialog) == CHOOSE_FOLDER:
            self.models_folder_wanted.emit()

    def show_help(self) -> None:
        help_window = self.findChild(HelpWindow) or HelpWindow(self._s.theme, self)
        help_window.show()
        help_window.raise_()
        help_window.activateWindow()

    def show_about(self) -> None:
        AboutDialog(self._s.theme, self).show()

    def show_error(self, error: UserError) -> None:
        """Something of the user's that failed, with what to do about it."""
        self.page.toast.say(sentence_of(error), seconds=12)

    def show_report(self, text: str) -> None:
        """A bug, with a report that can be copied."""
        explanation = "This is a bug. Please send the report with what you did, after a look at what it says."
        dialog = TextDialog(self._s.theme, "Something went wrong inside Inkstand", explanation, text, self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.show()

    # -- end ----------------------------------------------------------------------------------

    def request_quit(self) -> None:
        """Ask the program to end; it saves and closes the window."""
        if not self._quitting:
            self._quitting = True
            self.chats.end()
            self._s.preferences.update(window_state=self.save_state())
            self.quit_requested.emit()

    def reopen(self, state: Qt.ApplicationState) -> None:
        """A click in the Dock makes the program active: bring the window back."""
        if state == Qt.ApplicationState.ApplicationActive and self.isHidden() and not self._quitting and self._shown:
            self.show()

    def present(self) -> None:
        """Bring the window to the front; where the system keeps others from doing so, it is marked in the task bar."""
        if self._quitting:
            return
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()
        QApplication.alert(self)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._shown = True
        self.arrangement.fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._shown:
            self.arrangement.fit()

    def closeEvent(self, event: QCloseEvent) -> None:
        if self._quit_on_close:
            self.request_quit()
        # On a Mac the program stays in the Dock, and a click there shows the window again.
        self.hide()
        event.ignore()
