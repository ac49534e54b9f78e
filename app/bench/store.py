"""How long the history takes: opening a chat of 2,000 messages, searching 10,000, saving while streaming."""

from __future__ import annotations

import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from app.store.export import export_json
from app.store.history import History
from app.store.importing import import_json
from app.store.records import Answer, Round

_WORDS_PER_MESSAGE = 120
_REPEATS = 15


@dataclass(frozen=True, slots=True)
class Timing:
    """Median and worst time of one operation, in milliseconds."""

    name: str
    median_ms: float
    worst_ms: float
    limit_ms: float | None
    """What the median must stay below; None where nothing was promised."""

    @property
    def met(self) -> bool:
        return self.limit_ms is None or self.median_ms < self.limit_ms


def measure_store(messages: int = 10_000, long_chat: int = 2_000) -> list[Timing]:
    """Fills a history in a temporary folder and times what the window does with it.

    Args:
        messages: of all chats together.
        long_chat: messages of the chat that is opened.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chats.db"
        with closing(History.open(path)) as history:
            long = fill(history, messages, long_chat)
        started = time.perf_counter()
        with closing(History.open(path)) as history:
            opened = 1e3 * (time.perf_counter() - started)
            leaf = history.messages.path(long)[-1]
            answer = Writer(seed=1).answer(2_000)
            return [
                Timing("start with the whole history", opened, opened, None),
                _timed("list of chats", history.chats.list, None),
                _timed(f"open a chat of {long_chat} messages", lambda: history.messages.path(long), 100),
                _timed("its context for the model", lambda: history.messages.context(leaf.id), 100),
                *(_timed(f"search for {query!r}", lambda query=query: history.search(query), 50) for query in _QUERIES),
                _timed("save 2,000 words while streaming", lambda: history.messages.save_answer(leaf.id, answer), 10),
                _timed("send a message", lambda: history.messages.send(long, "One more question"), 50),
            ]


_QUERIES = ("s", "st", "starfish", "starfish tide", '"sa la"', "c++", "潮だまり")


class Writer:
    """Makes text whose words are as unevenly frequent as those of real text (Zipf's law)."""

    def __init__(self, seed: int, vocabulary: int = 20_000) -> None:
        self._random = random.Random(seed)
        syllables = ("sa", "la", "mi", "to", "star", "fish", "tide", "pool", "en", "ra", "ku", "st", "o", "ne", "è")
        self._words = [
            "".join(self._random.choices(syllables, k=self._random.randint(1, 4))) for _ in range(vocabulary)
        ]
        self._weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(vocabulary)))

    def text(self, length: int) -> str:
        """Words separated by spaces."""
        return " ".join(self._random.choices(self._words, cum_weights=self._weights, k=length))

    def answer(self, length: int) -> Answer:
        """An answer of one token a word, with rounds and figures."""
        return Answer(
            content=self.text(length),
            token_ids=tuple(self._random.randrange(200_000) for _ in range(length)),
            rounds=tuple(Round(3, 4, 2, 31.25) for _ in range(length // 3)),
            stats={"completion_tokens": length, "decode_tps": 86.1, "acceptance_length": 3.4},
            draft={"requested": "mtp", "effective": "mtp"},
            finish_reason="stop",
        )


def fill(history: History, messages: int, long_chat: int) -> int:
    """Chats of 40 messages and one of `long_chat`, `messages` in all. Returns the id of the long one."""
    writer = Writer(seed=0)
    # Made in memory and brought over at once: a transaction for each message would take longer than what is measured.
    with closing(History.in_memory()) as draft:
        remaining, length = messages, long_chat
        while remaining > 0:
            chat = draft.chats.create()
            for _ in range(length // 2):
                sent = draft.messages.send(chat.id, writer.text(30))
                begun = draft.messages.begin_answer(sent.id, model="demo")
                draft.messages.finish_answer(begun.id, writer.answer(2 * _WORDS_PER_MESSAGE - 30))
            remaining, length = remaining - length, 40
        return import_json(history, export_json(draft)).chat_ids[0]


def _timed(name: str, action: Callable[[], object], limit_ms: float | None) -> Timing:
    times: list[float] = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        action()
        times.append(1e3 * (time.perf_counter() - started))
    return Timing(name, statistics.median(times), max(times), limit_ms)
