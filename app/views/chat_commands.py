"""What the window does with chats: open, keep what is typed, rename, delete, export, step through them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFileDialog, QWidget

from app.chat_text import as_markdown
from app.controllers.answers import AnswerQueue
from app.controllers.chat import ChatController
from app.controllers.chats import ChatsController
from app.controllers.unsent import UnsentText
from app.store.history import History
from app.store.records import Chat
from app.store.titles import suggested_name
from app.theme import Theme
from app.views.chat.page import ChatPage
from app.views.chat.user_message import UserMessage
from app.views.chat_settings import ChatSettingsDialog
from app.views.sidebar import Sidebar
from engine.errors import UserError


class ChatCommands:
    """Commands over the chats; `failed` takes what the user can mend."""

    def __init__(
        self,
        *,
        window: QWidget,
        theme: Theme,
        history: History,
        chat: ChatController,
        chats: ChatsController,
        queue: AnswerQueue,
        page: ChatPage,
        sidebar: Sidebar,
        failed: Callable[[UserError], object],
    ) -> None:
        self._window, self._theme, self._history = window, theme, history
        self._chat, self._chats, self._queue = chat, chats, queue
        self._page, self._sidebar, self._failed = page, sidebar, failed
        sidebar.new_chat.connect(self.new)
        sidebar.opened.connect(self.open)
        sidebar.searched.connect(chats.search)
        sidebar.renamed.connect(chats.rename)
        sidebar.pin.connect(chats.pin)
        sidebar.duplicate.connect(self.duplicate)
        sidebar.delete.connect(self._delete)
        sidebar.export.connect(self.export)
        chats.listed.connect(sidebar.show_entries)
        chats.deleted.connect(self._deleted)
        chats.notice.connect(page.toast.say)
        chats.imported.connect(self.open)
        chat.chats_changed.connect(chats.refresh)
        self._unsent = UnsentText(history, queue.later)
        page.composer.changed.connect(self._note_unsent)
        page.composer.attach.connect(self.attach_files)
        chat.sending.connect(self._unsent.drop)
        chat.failed.connect(self._note_unsent)

    def new(self) -> None:
        """The blank page; what was typed in the chat that is left stays with it, as what was typed here before."""
        self.keep_unsent()
        self._chat.blank()
        self._restore_unsent(None)
        self._page.composer.editor.setFocus()

    def open(self, chat_id: int, message_id: int | None = None) -> None:
        """Show a chat, scrolled to `message_id` if given."""
        current = self._chat.chat
        if current is None or current.id != chat_id:
            self.keep_unsent()
            self._chat.open(chat_id, message_id)
            if self._in_sight() == chat_id:
                self._restore_unsent(chat_id)
        if message_id is not None:
            self._page.transcript.show_message(message_id)
            query = self._sidebar.search.text().strip()
            if query:
                self._page.find_bar.show_search(query, message_id)

    def keep_unsent(self) -> None:
        """Store what stands in the composer with the chat in sight, which is left."""
        try:
            self._unsent.leave(self._in_sight(), self._page.composer.unsent)
        except UserError as error:
            self._failed(error)

    def end(self) -> None:
        """The program ends: store what is typed for the last time."""
        self.keep_unsent()
        self._unsent.end()

    def _note_unsent(self) -> None:
        self._unsent.changed(self._in_sight(), lambda: self._page.composer.unsent)

    def _restore_unsent(self, chat_id: int | None) -> None:
        """Show what was left in the composer of a chat."""
        content = ""
        try:
            content = self._unsent.of(chat_id)
        except UserError as error:
            self._failed(error)
        self._page.composer.restore(content)
        # Nothing of it was typed now.
        self._unsent.drop()

    def _in_sight(self) -> int | None:
        return None if self._chat.chat is None else self._chat.chat.id

    def _deleted(self, chat: Chat) -> None:
        running = self._queue.of_chat(chat.id)
        if running is not None:
            self._queue.stop(running.message.id)
        if self._chat.chat is not None and self._chat.chat.id == chat.id:
            self._chat.blank()
            self._restore_unsent(None)
        title = f"Deleted “{chat.display_title[:40]}”."
        self._page.toast.say(title, "Undo", lambda: self._chats.undo(chat.id), seconds=10)

    def delete(self) -> None:
        self._with_chat(lambda chat: self._delete(chat.id))

    def _delete(self, chat_id: int) -> None:
        if self._in_sight() == chat_id:
            # While the chat is there: undoing brings it back with what was typed.
            self.keep_unsent()
        self._chats.delete(chat_id)

    def pin(self) -> None:
        self._with_chat(lambda chat: self._chats.pin(chat.id, not self._history.chats.get(chat.id).pinned))

    def duplicate(self, chat_id: int) -> None:
        chat = self._chats.duplicate(chat_id)
        if chat is not None:
            self.open(chat.id)

    def duplicate_current(self) -> None:
        self._with_chat(lambda chat: self.duplicate(chat.id))

    def step(self, by: int) -> None:
        """The chat above or below in the list."""
        chats = self._history.chats.list()
        current = self._chat.chat
        place = next((i for i, c in enumerate(chats) if current is not None and c.id == current.id), None)
        target = (0 if by > 0 else len(chats) - 1) if place is None else place + by
        if 0 <= target < len(chats):
            self.open(chats[target].id)

    def _with_chat(self, act: Callable[[Chat], object]) -> None:
        if self._chat.chat is not None:
            act(self._chat.chat)

    def edit_last(self) -> None:
        """Edit the last message that the user sent."""
        for message in reversed(self._page.transcript.messages):
            if message.role == "user":
                self._page.transcript.show_message(message.id)
                view = self._page.transcript.view(message.id)
                if isinstance(view, UserMessage):
                    view.start_edit()
                    self._page.transcript.show_message(message.id)
                return

    def find(self) -> None:
        """Find in the chat in sight."""
        if self._page.transcript.messages:
            self._page.find_bar.open_bar()

    def find_step(self, by: int) -> None:
        if self._page.transcript.messages:
            self._page.find_bar.step(by)

    def attach_files(self) -> None:
        """Choose text files to send with the next message."""
        paths, _ = QFileDialog.getOpenFileNames(self._window, "Attach text files", str(Path.home()))
        self._page.composer.attach_files([Path(path) for path in paths])
        self._page.composer.editor.setFocus()

    def copy_chat(self) -> None:
        """The conversation in sight as Markdown, to the clipboard."""
        chat = self._chat.chat
        if chat is not None:
            QGuiApplication.clipboard().setText(as_markdown(chat.display_title, self._chat.path))
            self._page.toast.say("The chat was copied as Markdown.", seconds=3)

    def search(self) -> None:
        """Put the cursor into the search over all chats."""
        self._sidebar.search.setFocus()
        self._sidebar.search.selectAll()

    def show_settings(self) -> ChatSettingsDialog:
        """Sampling, effort and system prompt of the chat in sight."""
        dialog = ChatSettingsDialog(self._theme, self._chat, self._window)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()
        return dialog

    def edit_system_prompt(self) -> None:
        self.show_settings().prompt.setFocus()

    def export(self, chat_id: int) -> None:
        title = self._history.chats.get(chat_id).display_title
        self._export(chat_id, suggested_name(title, ".md"), "Markdown (*.md);;JSON (*.json)")

    def export_current(self) -> None:
        self._with_chat(lambda chat: self.export(chat.id))

    def export_all(self) -> None:
        self._export(None, suggested_name("Inkstand chats", ".json"), "JSON (*.json)")

    def _export(self, chat_id: int | None, name: str, kinds: str) -> None:
        path, _ = QFileDialog.getSaveFileName(self._window, "Export", str(Path.home() / name), kinds)
        if path:
            self._chats.export(chat_id, Path(path))

    def import_chats(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self._window, "Import chats", str(Path.home()), "Chats (*.json *.md)")
        if path:
            self._chats.import_from(Path(path))
