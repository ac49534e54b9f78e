"""The history as one object: what the window holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from app.store.chats import Chats
from app.store.db import Database
from app.store.errors import StoreError
from app.store.messages import Messages
from app.store.records import SearchHit
from app.store.search import search


class History:
    """Chats, their messages, and search over both, usable from any thread.

    `notices` are sentences for the user about what happened while opening.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.chats = Chats(database)
        self.messages = Messages(database)
        self.notices = database.notices

    @classmethod
    def open(cls, path: Path, *, busy_timeout_s: float = 3.0, clock: Callable[[], float] = time.time) -> History:
        """Opens or creates the history, and marks answers that a crash cut short as stopped. See `Database.open`."""
        history = cls(Database.open(path, busy_timeout_s=busy_timeout_s, clock=clock))
        if not history.read_only:
            try:
                cut_short = history.messages.recover()
            except StoreError as error:
                # Reading works; whatever is in the way is reported when something is to be saved, too.
                history.notices += (f"{error.title} {error.hint}",)
            else:
                if cut_short:
                    answers = "An answer was" if cut_short == 1 else f"{cut_short} answers were"
                    history.notices += (f"{answers} cut short when Inkstand ended. What had arrived was kept.",)
        return history

    @classmethod
    def in_memory(cls, *, clock: Callable[[], float] = time.time, notices: tuple[str, ...] = ()) -> History:
        """A history that ends with the program: what remains when `open` raises and the window is to start anyway."""
        return cls(Database.in_memory(clock=clock, notices=notices))

    @property
    def read_only(self) -> bool:
        """Whether every attempt to write raises ReadOnlyError."""
        return self.database.read_only

    def search(self, query: str, limit: int = 50) -> list[SearchHit]:
        """Chats that hold all terms of the query; any text is a valid query. See `app.store.search`."""
        return search(self.database, query, limit)

    def close(self) -> None:
        """Closes the file. May be called twice."""
        self.database.close()
