"""Kills while somebody chats."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import chat_victim
from killing import Place


class Chatting(Place):
    """The window with a scripted model, or with the bundled one; one history for all kills."""

    span = 1.2

    def __init__(self, folder: Path, dice: random.Random, context: ForkServerContext, *, scripted: bool = True) -> None:
        super().__init__(folder, dice)
        self.name = "chatting" if scripted else "chatting, demo"
        self._context, self._scripted = context, scripted
        self._notes = folder / "notes.jsonl"
        self._since = self._checked = 0
        self._sent = self._answers = self._cut = self._typed = 0
        self._worst = 0.0

    def start(self) -> BaseProcess:
        self._since = len(chat_victim.read_notes(self._notes))
        return self._run(leave=False)

    def _run(self, *, leave: bool) -> BaseProcess:
        seed = self.dice.randrange(1 << 20)
        visit = chat_victim.Visit(self.folder / "home", self._notes, seed, self._scripted, leave, self._checked)
        child = self._context.Process(target=chat_victim.chat, args=(visit,))
        child.start()
        return child

    def is_busy(self) -> bool:
        return any(fact[0] == "busy" for fact in self._new())

    def _new(self) -> list[list[object]]:
        # The last line may be on its way.
        lines = self._notes.read_bytes().split(b"\n")[self._since : -1] if self._notes.exists() else []
        return [json.loads(line) for line in lines]

    def check(self) -> None:
        """The next child does: it is the program that has to find everything. Here only what it noted is counted."""
        new = self._new()
        self.losses += [str(fact[1]) for fact in new if fact[0] == "lost"]
        self._sent += sum(fact[0] == "sent" for fact in new)
        self._answers += sum(fact[0] == "settled" for fact in new)
        hands = [fact[0] for fact in new if fact[0] in ("typed", "touched")]
        self._typed += hands[-1:] == ["typed"]
        started = [fact for fact in new if fact[0] == "started"]
        if started:
            self._checked = self._since
            self.losses += [str(notice) for notice in started[0][1:] if "cut short" not in str(notice)]
            self._cut += any("cut short" in str(notice) for notice in started[0][1:])
        self._measure(new)

    def _measure(self, new: list[list[object]]) -> None:
        """Seconds of the last answer that was in sight and is not kept."""
        streamed = [fact for fact in new if fact[0] == "streamed"]
        if not streamed:
            return
        answer = streamed[-1][1]
        with closing(sqlite3.connect(f"file:{self.folder}/home/data/history.sqlite3?mode=ro", uri=True)) as database:
            row = database.execute("SELECT length(content), state FROM messages WHERE id = ?", (answer,)).fetchone()
        if row is not None and row[1] == "streaming":
            behind = [fact[3] for fact in streamed if fact[1] == answer and fact[2] > row[0]]  # type: ignore[operator]
            self._worst = max(self._worst, behind[-1] - behind[0] if behind else 0.0)  # type: ignore[operator]

    def close(self) -> None:
        """Start it once more, look for everything, and quit."""
        self._checked, self._since = 0, len(chat_victim.read_notes(self._notes))
        child = self._run(leave=True)
        child.join(60)
        if child.exitcode != 0:
            child.kill()
            self.losses.append(f"the last start ended with {child.exitcode}")
        self.check()
        with closing(sqlite3.connect(self.folder / "home" / "data" / "history.sqlite3")) as database:
            (verdict,) = database.execute("PRAGMA integrity_check").fetchone()
            (streaming,) = database.execute("SELECT count(*) FROM messages WHERE state = 'streaming'").fetchone()
        if verdict != "ok" or streaming:
            self.losses.append(f"the history at the end: {verdict}, {streaming} answers still streaming")

    def note(self) -> str:
        return (
            f"{self._sent} messages sent, {self._answers} answers ended, {self._cut} cut short, "
            f"of which at most the last {self._worst:.1f} s are gone, {self._typed} times with something unsent"
        )
