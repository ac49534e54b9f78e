"""Text that was typed and not sent: in the history shortly after typing pauses, so that no kill takes it along."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from PySide6.QtCore import QTimer

from app.store.errors import StoreError
from app.store.history import History

PAUSE_MS = 400
"""Milliseconds without a change after which text is stored."""
LONGEST_S = 3.0
"""Seconds after which it is stored all the same, from somebody who does not pause."""

Later = Callable[[Callable[[], object]], object]
"""Runs work on the thread that writes the history."""


class UnsentText:
    """What stands in the composer of the chat in sight; no chat is the page of a new one.

    The methods belong to the window's thread. Those that store at once wait for a store that is going on.
    """

    def __init__(self, history: History, later: Later) -> None:
        self._history, self._later = history, later
        self._begun = self._ended = False
        self._place: int | None = None
        self._content: Callable[[], str] = str
        self._changed_at = 0.0
        self._lock = threading.Lock()
        self._snapshot: tuple[int | None, str] | None = None
        """What the other thread is to store; whoever holds the lock may take it away."""
        self._timer = QTimer()
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._store_later)

    def of(self, chat_id: int | None) -> str:
        """What was left, of a chat that comes into sight. Raises StoreError."""
        self._begun = True
        return self._history.chats.unsent(chat_id)

    def changed(self, chat_id: int | None, content: Callable[[], str]) -> None:
        """Something was typed: store what `content` gives then once no more is typed."""
        if self._history.read_only or self._ended:
            return
        now = time.monotonic()
        if not self._timer.isActive():
            self._changed_at = now
        self._place, self._content = chat_id, content
        left = 1000 * (self._changed_at + LONGEST_S - now)
        self._timer.start(max(0, min(PAUSE_MS, int(left))))

    def leave(self, chat_id: int | None, content: str) -> None:
        """Store it now: another chat comes into sight, or the program ends. Raises StoreError."""
        self.drop()
        # Before anything came into sight, an empty composer is not what became of the text that was left in it.
        if self._begun and not self._history.read_only:
            self._history.chats.set_unsent(chat_id, content)

    def drop(self) -> None:
        """What was changed last is not to be stored any more: it is being sent."""
        self._timer.stop()
        with self._lock:
            self._snapshot = None

    def end(self) -> None:
        """Store nothing any more: the program ends, and the other thread with it."""
        self._ended = True
        self.drop()

    def _store_later(self) -> None:
        with self._lock:
            self._snapshot = (self._place, self._content())
        self._later(self._store)

    def _store(self) -> None:
        """On the other thread."""
        with self._lock:
            snapshot, self._snapshot = self._snapshot, None
            if snapshot is not None:
                # What is in the way is told when the text is left; until then the next change tries again.
                with suppress(StoreError):
                    self._history.chats.set_unsent(*snapshot, in_sight=True)
