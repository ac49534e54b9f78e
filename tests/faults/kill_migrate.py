"""Kills while a history of an older version is brought up to date."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import migrate_victim
from killing import ROOT, Place, duration

from app.store.errors import StoreError
from app.store.history import History

VERSIONS = sorted((ROOT / "tests" / "data" / "history").glob("*.sql"))
MESSAGES = 3_000
_FILL = """
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
    INSERT INTO messages (chat_id, parent_id, active, role, state, content, created_at)
    SELECT 1, NULL, 0, 'user', 'done', 'question ' || i || ' about ink, paper and ' || hex(randomblob(30)), i FROM n
"""
Rows = list[tuple[object, ...]]


def make_old(path: Path, version: Path) -> None:
    """A long history as an older version left it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"BEGIN; {version.read_text(encoding='utf-8')} COMMIT;")
        connection.execute(_FILL, (MESSAGES,))
        connection.commit()
        connection.execute("PRAGMA journal_mode = WAL")


def rows(path: Path) -> Rows:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT id, chat_id, parent_id, role, content FROM messages ORDER BY id").fetchall()


class Migrating(Place):
    """Histories of every older version, in turn; each is killed on its way until it arrives."""

    name = "migrating"

    def __init__(self, folder: Path, dice: random.Random, context: ForkServerContext) -> None:
        super().__init__(folder, dice)
        self._context = context
        self._marker = folder / "busy"
        self._olds = [folder / f"{version.stem}.old" for version in VERSIONS]
        for old, version in zip(self._olds, VERSIONS, strict=True):
            make_old(old, version)
        self._before = [rows(old) for old in self._olds]
        self._turn, self._halves = -1, Counter[str]()
        self._next()
        self.span = duration(self, self._next)
        self._next()

    def _next(self) -> None:
        """The next version's turn."""
        self._turn += 1
        self._path = self.folder / str(self._turn) / "history.sqlite3"
        self._path.parent.mkdir()
        shutil.copyfile(self._olds[self._turn % len(self._olds)], self._path)

    def start(self) -> BaseProcess:
        self._marker.unlink(missing_ok=True)
        child = self._context.Process(target=migrate_victim.run, args=(str(self._path), str(self._marker)))
        child.start()
        return child

    def is_busy(self) -> bool:
        return self._marker.exists()

    def check(self) -> None:
        """Look at a copy: every second time, the next child goes on from what the killed one left."""
        names = [path.name for path in self._path.parent.iterdir()]
        self._halves["backups"] += any(name.endswith(".part") for name in names)
        self._halves["updates"] += f"{self._path.name}-wal" in names
        copy = self.folder / "copy"
        shutil.copytree(self._path.parent, copy)
        self._open(copy / self._path.name)
        shutil.rmtree(copy)
        if self.dice.random() < 0.5:
            self._next()

    def _open(self, path: Path) -> None:
        before = self._before[self._turn % len(self._olds)]
        try:
            with closing(History.open(path)) as history:
                told = [notice for notice in history.notices if "cut short" not in notice]
                if told or history.read_only:
                    self.losses.append(f"opened with {told}")
                if len(history.search("question 77 about")) != 1:
                    self.losses.append("an old message is not found")
        except StoreError as error:
            self.losses.append(f"does not open: {error}")
            return
        if rows(path) != before:
            self.losses.append("messages are missing or changed")
        for kept in path.parent.iterdir():
            if ".before-update-" in kept.name and (kept.suffix != ".sqlite3" or rows(kept) != before):
                self.losses.append(f"{kept.name} is no whole backup")

    def close(self) -> None:
        child = self.start()
        child.join(60)
        if child.exitcode != 0:
            self.losses.append(f"the last update ended with {child.exitcode}")
        self._open(self._path)

    def note(self) -> str:
        return f"{self._halves['backups']} times in the backup, {self._halves['updates']} times in the update"
