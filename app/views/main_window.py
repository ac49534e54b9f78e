"""The window: sidebar, pages under the toolbar, statistics; it wires controllers to views."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPoint, QSize, Qt, Signal
from PySide6.QtGui import QCloseEvent, QShowEvent
from PySide6.QtWidgets import QApplication, QDialog, QMainWindow, QSplitter, QStackedWidget, QVBoxLayout, QWidget

from app.bridge import Stamped
from app.controllers.answer import Pieces
from app.controllers.answers import AnswerQueue, Running
from app.controllers.chat import ChatController
from app.controllers.chats import ChatsController
from app.controllers.preferences import Preferences
from app.controllers.replay import Replay
from app.controllers.stats import StatsController
from app.crash import report
from app.engine_host import EngineHost
from app.hints import sentence_of
from app.store.history import History
from app.store.records import Chat, Message, Round
from app.stylesheet import stylesheet
from app.theme import GRID, Theme
from app.views.chat.message import FINISH_NOTES
from app.views.chat.page import ChatPage
from app.views.chat.replay_dialog import ReplayDialog
from app.views.chat_commands import ChatCommands
from app.views.controls import Hairline, IconButton
from app.views.dialogs import TextDialog
from app.views.menus import Menus
from app.views.model_status import ModelStatus
from app.views.settings_dialog import SettingsDialog
from app.views.sidebar import Sidebar
from app.views.stats.panel import StatsPanel
from app.views.toolbar import Toolbar
from app.views.window_state import WindowState, pack, unpack
from engine.errors import UserError

SIDEBAR = 29 * GRID


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
    """Signals: quit_requested, models_wanted.

    Args:
        quit_on_close: closing the window ends the program; on a Mac it stays in the Dock instead.
    """

    quit_requested = Signal()
    models_wanted = Signal()

    def __init__(self, services: Services, *, quit_on_close: bool = sys.platform != "darwin") -> None:
        super().__init__()
        self._s = s = services
        self._quit_on_close = quit_on_close
        self._quitting = self._shown = False
        self.restyle()
        self.setWindowTitle("Inkstand")
        self.resize(1200, 800)
        self.setMinimumSize(QSize(640, 480))
        self.sidebar = Sidebar(s.theme, self)
        self.toolbar = Toolbar(s.theme, self)
        self.page = ChatPage(s.theme, s.chat, self)
        self.panel = StatsPanel(s.theme, self)
        self.stack = QStackedWidget(self)
        """The pages; more of them may be added beside the chat."""
        self.stack.addWidget(self.page)
        self._splitter = QSplitter(Qt.Orientation.Horizontal, self)
        self._build()
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
        self.menus = Menus(self, self._handlers())
        self._connect()
        s.theme.changing.connect(self.restyle)

    def _build(self) -> None:
        theme = self._s.theme
        right = QWidget()
        column = QVBoxLayout(right)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.toolbar)
        column.addWidget(Hairline(theme, right))
        lower = QSplitter(Qt.Orientation.Horizontal, right)
        lower.setHandleWidth(0)
        lower.addWidget(self.stack)
        lower.addWidget(self.panel)
        lower.setStretchFactor(0, 1)
        lower.setCollapsible(0, False)
        column.addWidget(lower, 1)
        self._splitter.setHandleWidth(1)
        self._splitter.addWidget(self.sidebar)
        self._splitter.addWidget(right)
        self._splitter.setStretchFactor(1, 1)
        self._splitter.setCollapsible(1, False)
        self._splitter.setSizes([SIDEBAR, 1200 - SIDEBAR])
        self.sidebar.setMinimumWidth(22 * GRID)
        self.sidebar.setMaximumWidth(50 * GRID)
        self.setCentralWidget(self._splitter)
        if sys.platform != "darwin":
            more = IconButton(theme, "more", "Menu", self.toolbar)
            more.clicked.connect(lambda: self._pop_menu(more))
            layout = self.toolbar.layout()
            assert layout is not None
            layout.addWidget(more)

    def _connect(self) -> None:
        s, page = self._s, self.page
        self.sidebar.opened.connect(self._show_page)
        self.sidebar.new_chat.connect(self._show_page)
        self.sidebar.settings.connect(self.show_settings)
        self.toolbar.new_chat.connect(self.new_chat)
        self.toolbar.sidebar.connect(self.toggle_sidebar)
        self.toolbar.panel.connect(self.toggle_panel)
        page.replay.connect(self.replay)
        page.report.connect(self._show_answer_report)
        page.settings.connect(self.show_settings)
        page.text_shown.connect(self._show_text)
        for source in (s.chats.failed, s.chat.failed, page.failed, s.preferences.failed, s.queue.trouble):
            source.connect(self.show_error)
        s.chat.opened.connect(self._opened)
        s.chat.path_changed.connect(self._show_stats)
        s.queue.started.connect(self._answer_started)
        s.queue.streamed.connect(self._answer_streamed)
        s.queue.finished.connect(self._answer_finished)
        s.stats.changed.connect(self.panel.show_state)

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
            "find": chats.find,
            "focus_composer": page.composer.editor.setFocus,
            "system_prompt": chats.edit_system_prompt,
            "stop": s.chat.stop,
            "regenerate": lambda: self._with_answer(s.chat.regenerate),
            "edit_last": chats.edit_last,
            "toggle_drafting": self.model.toggle_drafting,
            "toggle_rounds": lambda: self._with_answer(page.toggle_rounds),
            "rounds_as_text": lambda: self._with_answer(page.rounds_as_text),
            "replay": lambda: self._with_answer(self.replay),
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

    def toggle_sidebar(self, _on: bool = True) -> None:
        self.sidebar.setVisible(self.sidebar.isHidden())

    def toggle_panel(self, _on: bool = True) -> None:
        self.panel.setVisible(self.panel.isHidden())
        self.panel.show_state(self._s.stats.state)

    def show_plots(self) -> None:
        """Complete the panel with what takes long to import; called after the first paint."""
        self.panel.show_plots()
        self.panel.show_state(self._s.stats.state)

    def _pop_menu(self, button: QWidget) -> None:
        menu = self.menus.popup(self)
        menu.exec(button.mapToGlobal(QPoint(button.width() - menu.sizeHint().width(), button.height() + 2)))
        menu.deleteLater()

    def save_state(self) -> bytes:
        """Geometry, what is shown and which chat, for the settings."""
        chat = self._s.chat.chat
        return pack(
            WindowState(
                geometry=bytes(self.saveGeometry().data()),
                sidebar=not self.sidebar.isHidden(),
                panel=not self.panel.isHidden(),
                split=tuple(self._splitter.sizes()),
                chat=None if chat is None else chat.id,
            )
        )

    def restore_state(self, packed: bytes) -> int | None:
        """Apply what `save_state` gave. Returns the chat that was open."""
        state = unpack(packed)
        if state is None:
            return None
        self.restoreGeometry(state.geometry)
        self.sidebar.setVisible(state.sidebar)
        self.panel.setVisible(state.panel)
        self._splitter.setSizes(state.split)
        return state.chat

    # -- chats and answers --------------------------------------------------------------------

    def new_chat(self) -> None:
        self._show_page()
        self.chats.new()

    def _show_page(self) -> None:
        self.stack.setCurrentWidget(self.page)

    def _opened(self, chat: Chat | None, path: Sequence[Message]) -> None:
        self.sidebar.select(None if chat is None else chat.id)
        self.setWindowTitle("Inkstand" if chat is None else f"{chat.display_title} – Inkstand")
        self.model.show_switches()
        self._show_stats(path)

    def _show_stats(self, path: Sequence[Message]) -> None:
        if not self._s.stats.state.running:
            facts = self._s.host.facts
            self._s.stats.show(path, self._rounds_of, facts.context if facts else None)

    def _rounds_of(self, message_id: int) -> Sequence[Round]:
        return self._s.history.messages.trace(message_id).rounds

    def _answer_started(self, running: Running) -> None:
        facts = self._s.host.facts
        self._s.stats.begin(running.message.model, facts.context if facts else None)

    def _answer_streamed(self, _running: Running, _pieces: Pieces, events: Sequence[Stamped]) -> None:
        self._s.stats.take(events)

    def _answer_finished(self, running: Running) -> None:
        self._s.stats.end()
        if running.live.notices and running.message.finish_reason not in FINISH_NOTES:
            self.page.toast.say("  ".join(running.live.notices), seconds=12)

    def _with_answer(self, act: Callable[[int], object]) -> None:
        """Do something with the last answer in sight once it is complete."""
        answer = self.page.last_answer()
        if answer is not None and self._s.queue.get(answer) is None:
            act(answer)

    def replay(self, answer_id: int) -> None:
        """Open the window that runs an answer's turn again with the drafter the other way."""
        s = self._s
        message = next((m for m in s.chat.path if m.id == answer_id), None)
        request = s.chat.request_for(answer_id)
        if message is None or request is None:
            return
        ran_with = (message.draft or {}).get("effective") == "mtp"
        ids = s.history.messages.trace(answer_id).token_ids
        replay = Replay(s.host, request, message, ids, drafting=not ran_with)

        def learn(done: Message) -> None:
            s.stats.learn(done.model, replay.live.stats)

        replay.finished.connect(learn)
        dialog = ReplayDialog(s.theme, replay, self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.show()

    def _show_text(self, title: str, text: str) -> None:
        self._run(TextDialog(self._s.theme, title, "", text, self))

    def _show_answer_report(self, answer_id: int) -> None:
        explanation = "Please send this with what you did, after a look at what it says."
        self._run(TextDialog(self._s.theme, "Report of a bug", explanation, self._s.queue.report(answer_id), self))

    # -- messages -----------------------------------------------------------------------------

    def show_settings(self) -> None:
        self._run(SettingsDialog(self._s.theme, self._s.preferences, self))

    @staticmethod
    def _run(dialog: QDialog) -> None:
        """Wait for a dialog; its parent would keep it for good."""
        dialog.exec()
        dialog.deleteLater()

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
            self.chats.keep_unsent()
            self._s.preferences.update(window_state=self.save_state())
            self.quit_requested.emit()

    def reopen(self, state: Qt.ApplicationState) -> None:
        """A click in the Dock makes the program active: bring the window back."""
        if state == Qt.ApplicationState.ApplicationActive and self.isHidden() and not self._quitting and self._shown:
            self.show()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._shown = True

    def closeEvent(self, event: QCloseEvent) -> None:
        if self._quit_on_close:
            self.request_quit()
        # On a Mac the program stays in the Dock, and a click there shows the window again.
        self.hide()
        event.ignore()
