"""Transcript and composer, wired to the conversation in sight."""

from __future__ import annotations

from PySide6.QtCore import QUrl, Signal
from PySide6.QtGui import QDesktopServices, QDragEnterEvent, QDropEvent, QGuiApplication, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from app.attachments import split
from app.controllers.chat import ChatController
from app.rounds import as_text
from app.store.records import Chat, Message
from app.theme import COLUMN, GRID, Theme
from app.views.chat.composer import Composer
from app.views.chat.find_bar import FindBar
from app.views.chat.finder import Finder
from app.views.chat.markdown import safe_link
from app.views.chat.message import AssistantMessage
from app.views.chat.rounds import spans
from app.views.chat.transcript import Transcript
from app.views.chat.user_message import UserMessage
from app.views.chat.welcome import Welcome
from app.views.labels import Surface
from app.views.toast import Toast

WAITING = "The answer is still coming in. What you typed can be sent when it is done, or once you stop it."


class ChatPage(Surface):
    """Signals: replay(answer id), report(answer id), settings(section), chat_settings, new_chat,
    text_shown(title, text), failed(UserError).
    """

    replay = Signal(int)
    report = Signal(int)
    settings = Signal(str)
    chat_settings = Signal()
    new_chat = Signal()
    text_shown = Signal(str, str)
    failed = Signal(object)

    def __init__(self, theme: Theme, controller: ChatController, parent: QWidget | None = None) -> None:
        super().__init__(theme, "window", parent)
        self._controller = controller
        self._rounds_shown: set[int] = set()
        self.transcript = Transcript(theme, self)
        self.welcome = Welcome(theme, self)
        self.composer = Composer(theme, self)
        self.toast = Toast(theme, self, self.composer)
        self.finder = Finder(theme, self.transcript)
        self.find_bar = FindBar(theme, self.finder, self)
        self._stack = QStackedWidget(self)
        self._stack.addWidget(self.welcome)
        self._stack.addWidget(self.transcript)
        bottom = QHBoxLayout()
        bottom.setContentsMargins(3 * GRID, GRID, 3 * GRID, 2 * GRID)
        self.composer.setMaximumWidth(COLUMN)
        bottom.addStretch(0)
        bottom.addWidget(self.composer, 1)
        bottom.addStretch(0)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.find_bar)
        layout.addWidget(self._stack, 1)
        layout.addLayout(bottom)
        self.setAcceptDrops(True)
        self._connect()

    def _connect(self) -> None:
        controller, transcript, composer = self._controller, self.transcript, self.composer
        controller.opened.connect(self._opened)
        controller.path_changed.connect(self._path_changed)
        controller.added.connect(self._added)
        controller.streamed.connect(transcript.stream)
        controller.settled.connect(self._settled)
        controller.chats_changed.connect(self._refresh)
        transcript.action.connect(self._act)
        transcript.edited.connect(self._edit)
        transcript.link.connect(self._open_link)
        composer.sent.connect(self._send)
        composer.stopped.connect(controller.stop)
        composer.waiting.connect(lambda: self.toast.say(WAITING, seconds=6))
        composer.page.connect(self._page)
        composer.failed.connect(self.failed)
        composer.resized.connect(self.toast.reposition)
        self.welcome.chosen.connect(self._send)
        self.find_bar.closed.connect(composer.editor.setFocus)

    # -- what the controller says -------------------------------------------------------------

    def _opened(self, chat: Chat | None, path: list[Message]) -> None:
        self._rounds_shown.clear()
        self.finder.forget()
        self.find_bar.hide()
        self.transcript.set_messages(path)
        self._stack.setCurrentWidget(self.transcript if path else self.welcome)
        self._refresh()

    def _path_changed(self, path: list[Message]) -> None:
        self.transcript.set_messages(path)
        self.finder.refresh()
        self._refresh()

    def _added(self, message: Message) -> None:
        self._stack.setCurrentWidget(self.transcript)
        self.transcript.append(message)
        if message.role == "user":
            self.transcript.scroll_to_end()

    def _settled(self, message: Message) -> None:
        self.transcript.finish(message)
        if message.id in self._rounds_shown:
            self._show_rounds(message.id)
        self.finder.refresh()
        self._refresh()

    def _refresh(self) -> None:
        self.composer.set_running(self._controller.running is not None)

    # -- what the user does -------------------------------------------------------------------

    def _send(self, content: str) -> None:
        if self._controller.send(content):
            self.composer.clear()
        self.composer.editor.setFocus()

    def _edit(self, message_id: int, content: str) -> None:
        if not self._controller.edit(message_id, content):
            view = self.transcript.view(message_id)
            if isinstance(view, UserMessage):
                view.start_edit(content)

    def _page(self, direction: int) -> None:
        bar = self.transcript.verticalScrollBar()
        bar.setValue(bar.value() + direction * bar.pageStep())

    def _open_link(self, address: str) -> None:
        if safe_link(address):
            QDesktopServices.openUrl(QUrl(address))

    def _act(self, name: str, message_id: int) -> None:
        controller = self._controller
        if name.startswith("attachment:"):
            self._show_attachment(message_id, name.removeprefix("attachment:"))
            return
        if name.startswith("settings:"):
            self.settings.emit(name.removeprefix("settings:"))
            return
        match name:
            case "copy":
                self._copy(message_id)
            case "regenerate":
                controller.regenerate(message_id)
            case "retry":
                controller.retry(message_id)
            case "previous" | "next":
                controller.switch(message_id, 1 if name == "next" else -1)
            case "rounds":
                self.toggle_rounds(message_id)
            case "replay":
                self.replay.emit(message_id)
            case "report":
                self.report.emit(message_id)
            case "limit":
                self.chat_settings.emit() if "max_tokens" in controller.own_settings else self.settings.emit("Sampling")
            case "new-chat":
                self.new_chat.emit()
            case "edited":
                self.composer.editor.setFocus()
            case _:
                raise ValueError(f"unknown action {name}")

    def _message(self, message_id: int) -> Message | None:
        return next((m for m in self.transcript.messages if m.id == message_id), None)

    def _copy(self, message_id: int) -> None:
        message = self._message(message_id)
        if message is not None:
            QGuiApplication.clipboard().setText(message.content)
            self.toast.say("Copied.", seconds=2)

    def _show_attachment(self, message_id: int, name: str) -> None:
        message = self._message(message_id)
        if message is not None:
            text = next((a.text for a in split(message.content)[0] if a.name == name), "")
            self.text_shown.emit(name, text)

    # -- rounds -------------------------------------------------------------------------------

    def toggle_rounds(self, message_id: int) -> None:
        """Tint the rounds of an answer, or stop."""
        if message_id in self._rounds_shown:
            self._rounds_shown.discard(message_id)
            self.transcript.decorate(message_id, None)
        else:
            self._rounds_shown.add(message_id)
            self._show_rounds(message_id)

    def _show_rounds(self, message_id: int) -> None:
        found = self._controller.rounds(message_id)

        def tint(view: AssistantMessage) -> None:
            view.set_rounds(spans(view.body.markdown, view.message.content, found))

        self.transcript.decorate(message_id, tint)

    def last_answer(self) -> int | None:
        """Id of the last answer in sight's chat."""
        return next((m.id for m in reversed(self.transcript.messages) if m.role == "assistant"), None)

    def rounds_as_text(self, message_id: int) -> None:
        """The round view in words, in a window."""
        message = self._message(message_id)
        if message is not None:
            self.text_shown.emit("Rounds", as_text(message.content, self._controller.rounds(message_id)))

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if event.mimeData().hasUrls():
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        """A file may be dropped anywhere in the conversation."""
        self.composer.editor.insertFromMimeData(event.mimeData())
        event.acceptProposedAction()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if not self.toast.isHidden():
            self.toast.reposition()
