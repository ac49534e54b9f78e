"""The list of chats: search, rename, pin, duplicate, delete with undo, export and import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.background import Background, Outcome
from app.store.export import export_json, write_export
from app.store.history import History
from app.store.importing import ImportReport, import_file
from app.store.markdown import export_markdown
from app.store.records import Chat, SearchHit
from app.wording import plural
from engine.errors import UserError


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the list."""

    chat: Chat
    snippet: str = ""
    message_id: int | None = None
    """Where a search found it."""
    busy: bool = False
    """An answer is on its way."""


class ChatsController(QObject):
    """Signals: listed(entries), deleted(Chat), imported(id of the first chat), failed(UserError), notice(text)."""

    listed = Signal(object)
    deleted = Signal(object)
    imported = Signal(int)
    failed = Signal(object)
    notice = Signal(str)

    def __init__(self, history: History, busy: Callable[[], frozenset[int]], background: Background) -> None:
        super().__init__()
        self._background = background
        self._history = history
        self._busy = busy
        self._query = ""

    def refresh(self) -> None:
        """List the chats, or what the search finds."""
        self._try(self._list)

    def search(self, query: str) -> None:
        if query.strip() != self._query:
            self._query = query.strip()
            self.refresh()

    def _list(self) -> None:
        busy = self._busy()
        entries: Sequence[Entry]
        if self._query:
            hits: list[SearchHit] = self._history.search(self._query)
            entries = [Entry(h.chat, " ".join(h.snippet.split()), h.message_id, h.chat.id in busy) for h in hits]
        else:
            entries = [Entry(chat, busy=chat.id in busy) for chat in self._history.chats.list()]
        self.listed.emit(entries)

    def rename(self, chat_id: int, title: str) -> None:
        self._change(lambda: self._history.chats.rename(chat_id, title.strip()))

    def pin(self, chat_id: int, pinned: bool) -> None:
        self._change(lambda: self._history.chats.set_pinned(chat_id, pinned))

    def duplicate(self, chat_id: int) -> Chat | None:
        made: list[Chat] = []
        self._change(lambda: made.append(self._history.chats.duplicate(chat_id)))
        return made[0] if made else None

    def delete(self, chat_id: int) -> None:
        """Take a chat out of sight; `undo` brings it back."""

        def work() -> None:
            chat = self._history.chats.get(chat_id)
            self._history.chats.delete(chat_id)
            self.deleted.emit(chat)

        self._change(work)

    def undo(self, chat_id: int) -> None:
        self._change(lambda: self._history.chats.undo_delete(chat_id))

    def export(self, chat_id: int | None, path: Path) -> None:
        """A chat as Markdown or JSON by the file's suffix; None is all of them, as JSON."""

        def work() -> None:
            if chat_id is not None and path.suffix.lower() in (".md", ".markdown"):
                text = export_markdown(self._history, chat_id)
            else:
                text = export_json(self._history, None if chat_id is None else [chat_id])
            write_export(path, text)

        def done(outcome: Outcome[None]) -> None:
            if self._try(outcome.get):
                self.notice.emit(f"Saved {path.name}.")

        self._background.run(work, done)

    def import_from(self, path: Path) -> None:
        """Read chats from a file."""

        def done(outcome: Outcome[ImportReport]) -> None:
            if not self._try(outcome.get):
                return
            report = outcome.get()
            self.refresh()
            self.notice.emit(f"Imported {plural(len(report.chat_ids), 'chat')}.")
            if report.chat_ids:
                self.imported.emit(report.chat_ids[0])

        self._background.run(lambda: import_file(self._history, path), done)

    def _change(self, work: Callable[[], object]) -> None:
        if self._try(work):
            self.refresh()

    def _try(self, work: Callable[[], object]) -> bool:
        try:
            work()
        except UserError as error:
            self.failed.emit(error)
            return False
        return True
