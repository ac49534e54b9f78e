"""Looks through all messages of a conversation, those without a widget included, a slice of time after another."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtGui import QTextDocument

from app.attachments import split
from app.find import places
from app.store.records import Message
from app.theme import Theme
from app.views.chat.look import Look
from app.views.chat.markdown_document import MarkdownDocument
from app.views.chat.message import display_source
from app.views.chat.pool import MessageWidget
from app.views.chat.spans import Span
from app.views.chat.transcript import Transcript

SLICE_S = 0.008
"""Seconds at a time, so that the window stays at hand."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A place in a rendered message."""

    message_id: int
    start: int
    end: int


class Finder(QObject):
    """Keeps the hits of one pattern, marks them in the transcript and steps through them.

    Signal: changed, whenever `hits`, `current` or `complete` did.
    """

    changed = Signal()

    def __init__(self, theme: Theme, transcript: Transcript) -> None:
        super().__init__(transcript)
        self._theme, self._transcript = theme, transcript
        self._pattern: re.Pattern[str] | None = None
        self._waiting: list[Message] = []
        self._known: dict[int, tuple[str, str]] = {}
        """Message -> its source and the text that is shown of it."""
        self._from: int | None = None
        self._kept: Hit | None = None
        """The hit to stay at, without scrolling there."""
        self.hits: list[Hit] = []
        self.current: int | None = None
        self.complete = True
        self._timer = QTimer(self)
        self._timer.setInterval(0)
        self._timer.timeout.connect(self._slice)

    def start(self, pattern: re.Pattern[str] | None, *, at: int | None = None) -> None:
        """Look for `pattern`; the first hit in the message `at`, or in what is in sight, becomes the current one."""
        seen = self._transcript.visible_ids
        self._from = at if at is not None else seen[0] if seen else None
        self._pattern, self.hits, self.current, self._kept = pattern, [], None, None
        self._waiting = [] if pattern is None else list(self._transcript.messages)
        self.complete = not self._waiting
        self._transcript.set_marker(None if pattern is None else self._mark)
        if self._waiting:
            self._timer.start()
        else:
            self._timer.stop()
        self.changed.emit()

    def stop(self) -> None:
        self.start(None)

    def refresh(self) -> None:
        """Messages changed: look again, without scrolling from where the reader is."""
        if self._pattern is not None:
            kept = self._kept if self.current is None else self.hits[self.current]
            self.start(self._pattern)
            self._kept = kept

    def step(self, by: int) -> None:
        """To the next hit or the one before, around the ends."""
        if self.hits:
            self._go(((-1 if by > 0 else 0) if self.current is None else self.current) + by)

    def _go(self, index: int) -> None:
        self.current = index % len(self.hits)
        hit = self.hits[self.current]
        self._transcript.reveal(hit.message_id, lambda view: self._top(view, hit))
        self._transcript.set_marker(self._mark)
        self.changed.emit()

    @staticmethod
    def _top(view: MessageWidget, hit: Hit) -> int:
        view.unfold()
        return view.body.y() + view.body.top_of(hit.start)

    def _slice(self) -> None:
        end = time.perf_counter() + SLICE_S
        pattern = self._pattern
        while self._waiting and pattern is not None:
            message = self._waiting.pop(0)
            self.hits += [Hit(message.id, *place) for place in places(self._text(message), pattern)]
            if time.perf_counter() > end:
                break
        if not self._waiting:
            self._timer.stop()
            self.complete = True
        self._settle()
        self.changed.emit()

    def _settle(self) -> None:
        """Take the first hit from where the reader is, once the search has come there."""
        if self.current is not None or not self.hits:
            return
        if self._kept is not None:
            if self._kept in self.hits:
                self.current = self.hits.index(self._kept)
                self._transcript.set_marker(self._mark)
            elif self.complete:
                self._kept = None
            return
        order = {message.id: i for i, message in enumerate(self._transcript.messages)}
        begin = order.get(self._from, 0) if self._from is not None else 0
        found = next((i for i, hit in enumerate(self.hits) if order.get(hit.message_id, 0) >= begin), None)
        if found is None and self.complete:
            found = 0
        if found is not None:
            self._go(found)

    def _text(self, message: Message) -> str:
        """What is shown of a message, rendered once."""
        source = split(message.content)[1] if message.role == "user" else display_source(message)
        known = self._known.get(message.id)
        if known is None or known[0] != source:
            document = MarkdownDocument(QTextDocument(), Look.of(self._theme))
            if message.role == "user":
                document.set_plain(source)
            else:
                document.append(source)
                document.flush(final=True)
            known = self._known[message.id] = (source, document.document.toPlainText())
        return known[1]

    def forget(self) -> None:
        """Another conversation."""
        self._known.clear()
        self.stop()

    def _mark(self, view: MessageWidget) -> None:
        pattern = self._pattern
        if pattern is None:
            return
        now = None if self.current is None else self.hits[self.current]
        shown = view.body.markdown.document.toPlainText()
        view.body.set_marks(
            [
                Span(start, end, "found_now" if now == Hit(view.message.id, start, end) else "found", "")
                for start, end in places(shown, pattern)
            ]
        )
