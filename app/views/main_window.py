"""The window: sidebar, pages under the toolbar, statistics; it wires controllers to views and holds no state of its own
beyond what is shown."""

from __future__ import annotations

import json
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QPoint, QSize, Qt, Signal
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import QApplication, QFileDialog, QMainWindow, QSplitter, QStackedWidget, QVBoxLayout, QWidget

from app.controllers.answers import AnswerQueue, Running
from app.controllers.chat import ChatController
from app.controllers.chats import ChatsController
from app.controllers.preferences import Preferences
from app.controllers.replay import Replay
from app.controllers.stats import StatsController
from app.crash import blame
from app.engine_host import EngineHost, LoadRequest
from app.store.titles import suggested_name
from app.store.history import History
from app.store.records import Chat, Message, Round
from app.stylesheet import stylesheet
from app.theme import GRID, Theme
from app.views.chat.page import ChatPage
from app.views.chat.replay_dialog import ReplayDialog
from app.views.chat.user_message import UserMessage
from app.views.controls import Hairline, IconButton, Surface
from app.views.dialogs import PromptDialog, TextDialog
from app.views.menus import Menus
from app.views.settings_dialog import SettingsDialog
from app.views.sidebar import Sidebar
from app.views.stats.panel import StatsPanel
from app.views.toolbar import ModelChoice, Toolbar
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
    """Signals: quit_requested, model_chosen(key)."""

    quit_requested = Signal()
    model_chosen = Signal(str)

    def __init__(self, services: Services, *, quit_on_close: bool = sys.platform != "darwin") -> None:
        super().__init__()
        self._s = services
        self._quit_on_close = quit_on_close
        self._quitting = False
        self._load_error: UserError | BaseException | None = None
        theme = services.theme
        self.restyle()
        self.setWindowTitle("Inkstand")
        self.resize(1200, 800)
        self.setMinimumSize(QSize(640, 480))
        self.sidebar = Sidebar(theme, self)
        self.toolbar = Toolbar(theme, self)
        self.page = ChatPage(theme, services.chat, self)
        self.panel = StatsPanel(theme, self)
        self.stack = QStackedWidget(self)
        """The pages; more of them may be added beside the chat."""
        self.stack.addWidget(self.page)
        self._build()
        self.menus = Menus(self, self._handlers())
        self._connect()
        theme.changing.connect(self.restyle)

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
        self._splitter = QSplitter(Qt.Orientation.Horizontal, self)
        self._splitter.setHandleWidth(1)
        self._splitter.addWidget(self.sidebar)
        self._splitter.addWidget(right)
        self._splitter.setStretchFactor(1, 1)
        self._splitter.setCollapsible(1, False)
        self._splitter.setSizes([29 * GRID, 1200 - 29 * GRID])
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
        s, sidebar, toolbar, page = self._s, self.sidebar, self.toolbar, self.page
        sidebar.opened.connect(self._open)
        sidebar.new_chat.connect(self.new_chat)
        sidebar.searched.connect(s.chats.search)
        sidebar.renamed.connect(s.chats.rename)
        sidebar.pin.connect(s.chats.pin)
        sidebar.duplicate.connect(self._duplicate)
        sidebar.delete.connect(s.chats.delete)
        sidebar.export.connect(self._export)
        sidebar.settings.connect(self.show_settings)
        toolbar.sidebar.connect(self._toggle_sidebar)
        toolbar.panel.connect(self._toggle_panel)
        toolbar.new_chat.connect(self.new_chat)
        toolbar.drafting.connect(self.set_drafting)
        toolbar.depth.connect(self._set_depth)
        toolbar.effort.connect(self._set_effort)
        toolbar.model.connect(self.model_chosen)
        page.replay.connect(self.replay)
        page.report.connect(self._show_answer_report)
        page.settings.connect(self.show_settings)
        page.text_shown.connect(lambda title, text: TextDialog(s.theme, title, "", text, self).exec())
        s.chats.listed.connect(sidebar.show_entries)
        s.chats.deleted.connect(self._deleted)
        s.chats.notice.connect(page.toast.say)
        for source in (s.chats.failed, s.chat.failed, page.failed, s.preferences.failed, s.queue.trouble):
            source.connect(self.show_error)
        s.chat.opened.connect(self._opened)
        s.chat.chats_changed.connect(s.chats.refresh)
        s.chat.path_changed.connect(lambda path: self._show_stats(path))
        s.queue.started.connect(self._answer_started)
        s.queue.streamed.connect(self._answer_streamed)
        s.queue.finished.connect(self._answer_finished)
        s.stats.changed.connect(self.panel.show_state)
        s.host.changed.connect(self._host_changed)
        s.host.progressed.connect(self._host_changed)
        s.host.failed.connect(self._load_failed)
        s.preferences.changed.connect(lambda _settings: self._show_switches())

    def _handlers(self) -> dict[str, Callable[[], object]]:
        s, page = self._s, self.page
        return {
            "new_chat": self.new_chat,
            "import_chats": self._import,
            "export_chat": lambda: self._with_chat(lambda chat: self._export(chat.id)),
            "export_all": lambda: self._export(None),
            "preferences": self.show_settings,
            "close_window": self.close,
            "quit": self.request_quit,
            "find": self._find,
            "focus_composer": page.composer.editor.setFocus,
            "system_prompt": self.edit_system_prompt,
            "stop": s.chat.stop,
            "regenerate": lambda: self._with_answer(s.chat.regenerate),
            "edit_last": self._edit_last,
            "toggle_drafting": lambda: self.set_drafting(not s.host.drafting),
            "toggle_rounds": lambda: self._with_answer(page.toggle_rounds),
            "rounds_as_text": lambda: self._with_answer(page.rounds_as_text),
            "replay": lambda: self._with_answer(self.replay),
            "rename_chat": self.sidebar.rename_current,
            "pin_chat": lambda: self._with_chat(lambda chat: s.chats.pin(chat.id, not chat.pinned)),
            "duplicate_chat": lambda: self._with_chat(lambda chat: self._duplicate(chat.id)),
            "delete_chat": lambda: self._with_chat(lambda chat: s.chats.delete(chat.id)),
            "toggle_sidebar": self._toggle_sidebar,
            "toggle_panel": self._toggle_panel,
            "larger": lambda: self._scale(1),
            "smaller": lambda: self._scale(-1),
            "normal_size": lambda: s.preferences.update(font_size=13),
            "previous_chat": lambda: self._step_chat(-1),
            "next_chat": lambda: self._step_chat(1),
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

    def _toggle_sidebar(self, _on: bool = True) -> None:
        self.sidebar.setVisible(self.sidebar.isHidden())

    def _toggle_panel(self, _on: bool = True) -> None:
        self.panel.setVisible(self.panel.isHidden())
        self.panel.show_state(self._s.stats.state)

    def _pop_menu(self, button: QWidget) -> None:
        menu = self.menus.popup(self)
        menu.exec(button.mapToGlobal(QPoint(button.width() - menu.sizeHint().width(), button.height() + 2)))

    def save_state(self) -> bytes:
        """Geometry and what is shown, for the settings."""
        geometry = b64encode(self.saveGeometry().data()).decode()
        return json.dumps(
            {
                "geometry": geometry,
                "sidebar": not self.sidebar.isHidden(),
                "panel": not self.panel.isHidden(),
                "split": self._splitter.sizes(),
                "chat": None if self._s.chat.chat is None else self._s.chat.chat.id,
            }
        ).encode()

    def restore_state(self, state: bytes) -> int | None:
        """What `save_state` gave; the chat that was open."""
        try:
            values = json.loads(state)
            self.restoreGeometry(b64decode(values["geometry"]))
            self.sidebar.setVisible(bool(values["sidebar"]))
            self.panel.setVisible(bool(values["panel"]))
            self._splitter.setSizes([int(size) for size in values["split"]])
            return None if values["chat"] is None else int(values["chat"])
        except (ValueError, KeyError, TypeError):
            return None

    # -- chats --------------------------------------------------------------------------------

    def new_chat(self) -> None:
        self._keep_unsent()
        self.stack.setCurrentWidget(self.page)
        self._s.chat.blank()
        self.page.composer.clear()
        self.page.composer.editor.setFocus()

    def _open(self, chat_id: int, message_id: int | None) -> None:
        self.stack.setCurrentWidget(self.page)
        current = self._s.chat.chat
        if current is None or current.id != chat_id:
            self._keep_unsent()
            self._s.chat.open(chat_id, message_id)
            self.page.composer.clear()
            self.page.composer.set_text(self._s.history.chats.unsent(chat_id))
        if message_id is not None:
            self.page.transcript.show_message(message_id)

    def open_chat(self, chat_id: int) -> None:
        """Show a chat, as if it were chosen in the list."""
        self._open(chat_id, None)

    def _keep_unsent(self) -> None:
        chat = self._s.chat.chat
        if chat is not None and not self._s.history.read_only:
            try:
                self._s.history.chats.set_unsent(chat.id, self.page.composer.text)
            except UserError as error:
                self.show_error(error)

    def _opened(self, chat: Chat | None, path: list[Message]) -> None:
        self.sidebar.select(None if chat is None else chat.id)
        self.setWindowTitle("Inkstand" if chat is None else f"{chat.display_title} – Inkstand")
        self._show_switches()
        self._show_stats(path)

    def _show_stats(self, path: Sequence[Message]) -> None:
        if not self._s.stats.state.running:
            context = self._s.host.facts.context if self._s.host.facts else None
            self._s.stats.show(path, self._rounds_of, context)

    def _rounds_of(self, message_id: int) -> Sequence[Round]:
        return self._s.history.messages.trace(message_id).rounds

    def _deleted(self, chat: Chat) -> None:
        running = self._s.queue.of_chat(chat.id)
        if running is not None:
            self._s.queue.stop(running.message.id)
        if self._s.chat.chat is not None and self._s.chat.chat.id == chat.id:
            self._s.chat.blank()
        title = f"Deleted “{chat.display_title[:40]}”."
        self.page.toast.say(title, "Undo", lambda: self._s.chats.undo(chat.id), seconds=10)

    def _duplicate(self, chat_id: int) -> None:
        chat = self._s.chats.duplicate(chat_id)
        if chat is not None:
            self.open_chat(chat.id)

    def _step_chat(self, by: int) -> None:
        chats = self._s.history.chats.list()
        current = self._s.chat.chat
        place = next((i for i, c in enumerate(chats) if current is not None and c.id == current.id), -1 if by > 0 else 0)
        if chats and 0 <= place + by < len(chats):
            self.open_chat(chats[place + by].id)

    def _with_chat(self, act: Callable[[Chat], object]) -> None:
        if self._s.chat.chat is not None:
            act(self._s.chat.chat)

    def _with_answer(self, act: Callable[[int], object]) -> None:
        answer = self.page.last_answer()
        if answer is not None and self._s.queue.get(answer) is None:
            act(answer)

    def _edit_last(self) -> None:
        for message in reversed(self.page.transcript.messages):
            if message.role == "user":
                self.page.transcript.show_message(message.id)
                view = self.page.transcript.view(message.id)
                if isinstance(view, UserMessage):
                    view.start_edit()
                return

    def _find(self) -> None:
        self.sidebar.show()
        self.sidebar.search.setFocus()
        self.sidebar.search.selectAll()

    def edit_system_prompt(self) -> None:
        PromptDialog(self._s.theme, self._s.chat.system_prompt, self._s.chat.set_system_prompt, self).exec()

    def _export(self, chat_id: int | None) -> None:
        title = "Inkstand chats" if chat_id is None else self._s.history.chats.get(chat_id).display_title
        kinds = "JSON (*.json)" if chat_id is None else "Markdown (*.md);;JSON (*.json)"
        name = suggested_name(title, ".json" if chat_id is None else ".md")
        path, _ = QFileDialog.getSaveFileName(self, "Export", str(Path.home() / name), kinds)
        if path:
            self._s.chats.export(chat_id, Path(path))

    def _import(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Import chats", str(Path.home()), "Chats (*.json *.md)")
        chat_id = self._s.chats.import_from(Path(path)) if path else None
        if chat_id is not None:
            self.open_chat(chat_id)

    # -- answers ------------------------------------------------------------------------------

    def _answer_started(self, running: Running) -> None:
        facts = self._s.host.facts
        self._s.stats.begin(running.message.model, facts.context if facts else None)

    def _answer_streamed(self, _running: Running, _pieces: object, events: object) -> None:
        if isinstance(events, list):
            self._s.stats.take(events)  # pyright: ignore[reportUnknownArgumentType]

    def _answer_finished(self, _running: Running) -> None:
        self._s.stats.end()

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
        replay.finished.connect(lambda done: s.stats.learn(done.model, replay.live.stats))
        dialog = ReplayDialog(s.theme, replay, self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.show()

    def _show_answer_report(self, answer_id: int) -> None:
        text = self._s.queue.report(answer_id)
        explanation = "Please send this with what you did. It holds nothing of your chats."
        TextDialog(self._s.theme, "Report of a bug", explanation, text, self).exec()

    # -- model and switches -------------------------------------------------------------------

    def show_models(self, choices: Sequence[ModelChoice], current: str) -> None:
        self._choices, self._current_model = choices, current
        self._host_changed()

    _choices: Sequence[ModelChoice] = ()
    _current_model = ""

    def _host_changed(self) -> None:
        host = self._s.host
        welcome = self.page.welcome
        if host.loading is not None:
            self._load_error = None
            title = f"Loading {host.loading.name}…"
            welcome.show_model(title, host.progress.text or "Opening the files", host.progress.fraction)
            self.toolbar.show_models(self._choices, self._current_model, title)
        elif host.facts is not None:
            facts = host.facts
            head = f"an MTP head of {facts.depths} depths" if facts.depths else "no MTP head"
            welcome.show_model(
                f"{facts.name} is ready", f"{head[0].upper()}{head[1:]}, {facts.context:,} tokens of context. Try it:", None
            )
            self.toolbar.show_models(self._choices, self._current_model, facts.name)
            self.panel.set_depths(facts.depths)
            self.panel.show_state(self._s.stats.state)
        elif self._load_error is None:
            welcome.show_model("No model is loaded", "Choose one in the toolbar.", None)
            self.toolbar.show_models(self._choices, self._current_model, "No model")
        self._show_switches()

    def _load_failed(self, error: BaseException) -> None:
        self._load_error = error
        title, hint, bug = blame(error)
        self.page.welcome.show_model("The model could not be loaded", f"{title} {hint}", None)
        self.toolbar.show_models(self._choices, self._current_model, "No model")
        if bug:
            raise error
        if self._s.chat.path:
            self.page.toast.say(f"{title} {hint}", seconds=20)

    def load(self, request: LoadRequest) -> None:
        self._s.host.load(request)

    def _show_switches(self) -> None:
        host, facts = self._s.host, self._s.host.facts
        self.toolbar.show_effort(self._s.chat.effort)
        if facts is None:
            self.toolbar.show_drafting(None)
        elif not facts.depths:
            self.toolbar.show_drafting(None, reason=facts.head_reason or "This checkpoint has no MTP head.")
        else:
            self.toolbar.show_drafting(host.drafting, depths=facts.depths, depth=host.depth)

    def set_drafting(self, on: bool) -> None:
        """Also in the middle of an answer: it holds from the next round on."""
        if self._s.host.facts is None or self._s.host.facts.depths:
            self._s.host.set_drafting(on)
        self._keep_draft_default()

    def _set_depth(self, depth: int | None) -> None:
        self._s.host.set_depth(depth)
        self._keep_draft_default()

    def _keep_draft_default(self) -> None:
        draft = self._s.preferences.value.draft
        host = self._s.host
        self._s.preferences.update(draft=type(draft)(enabled=host.drafting, depth=host.depth))
        self._show_switches()

    def _set_effort(self, effort: str) -> None:
        self._s.chat.set_effort(effort)
        self._show_switches()

    # -- messages -----------------------------------------------------------------------------

    def show_settings(self) -> None:
        SettingsDialog(self._s.theme, self._s.preferences, self).exec()

    def show_error(self, error: UserError) -> None:
        """Something of the user's that failed, with what to do about it."""
        self.page.toast.say(f"{error.title} {error.hint}".strip(), seconds=12)

    def show_report(self, text: str) -> None:
        """A bug, with a report that can be copied."""
        explanation = "This is a bug. Please send the report with what you did; it holds nothing of your chats."
        TextDialog(self._s.theme, "Something went wrong inside Inkstand", explanation, text, self).show()

    # -- end ----------------------------------------------------------------------------------

    def request_quit(self) -> None:
        """Ask the program to end; it saves and closes the window."""
        if not self._quitting:
            self._quitting = True
            self._keep_unsent()
            self._s.preferences.update(window_state=self.save_state())
            self.quit_requested.emit()

    def closeEvent(self, event: QCloseEvent) -> None:
        if self._quit_on_close:
            self.request_quit()
        # On a Mac the program stays in the Dock, and a click there shows the window again.
        self.hide()
        event.ignore()
