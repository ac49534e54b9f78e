"""Conversations to fill the window with: the Markdown that answers are made of, the same at every run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing

from app.store.export import export_json
from app.store.history import History
from app.store.importing import import_json
from app.store.records import Answer, Round

_WORDS: Sequence[str] = (
    "tide", "pool", "starfish", "water", "stone", "light", "morning", "current", "shore", "small", "quiet", "between",
    "under", "over", "slowly", "once", "the", "a", "of", "and", "to", "in", "that", "is", "with", "from", "for", "it",
    "as", "on", "they", "when", "where", "every", "other", "model", "token", "draft", "round", "answer", "memory",
)  # fmt: skip
_CODE = (
    "def syllables(line: str) -> int:\n    # Vowels in a row are one.\n    return len(re.findall(r'[aeiouy]+', line))\n"
)


class Prose:
    """Writes text of any length from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def sentence(self) -> str:
        words: list[str] = self._random.choices(_WORDS, k=self._random.randint(6, 18))
        if self._random.random() < 0.3:
            at = self._random.randrange(len(words))
            words[at] = self._random.choice(("**{}**", "*{}*", "`{}`", "[{}](https://example.org/)")).format(words[at])
        return f"{' '.join(words).capitalize()}."

    def paragraph(self) -> str:
        return " ".join(self.sentence() for _ in range(self._random.randint(2, 6)))

    def answer(self, characters: int) -> str:
        """Markdown of about that length: paragraphs, headings, lists, tables, code."""
        blocks: list[str] = []
        length = 0
        while length < characters:
            block = self._block()
            blocks.append(block)
            length += len(block) + 2
        return "\n\n".join(blocks)

    def _block(self) -> str:
        kind = self._random.random()
        if kind < 0.5:
            return self.paragraph()
        if kind < 0.6:
            return f"## {self.sentence().rstrip('.')}"
        if kind < 0.75:
            mark = self._random.choice(("-", "1."))
            return "\n".join(f"{mark} {self.sentence()}" for _ in range(self._random.randint(3, 9)))
        if kind < 0.85:
            rows = [f"| {' | '.join(self._random.choices(_WORDS, k=4))} |" for _ in range(self._random.randint(3, 14))]
            return "\n".join((rows[0], "|---|:-:|--:|---|", *rows[1:]))
        return f"```python\n{_CODE * self._random.randint(1, 12)}```"


def add_chat(history: History, messages: int, *, characters: int = 600) -> int:
    """A chat of so many messages, half of them answers of about `characters`. Returns its id."""
    prose = Prose(seed=messages)
    # Made in memory and brought over at once: a transaction for each message would take minutes.
    with closing(History.in_memory()) as draft:
        chat = draft.chats.create(title=f"A chat of {messages} messages")
        for _ in range(messages // 2):
            sent = draft.messages.send(chat.id, prose.sentence())
            begun = draft.messages.begin_answer(sent.id, model="demo")
            draft.messages.finish_answer(begun.id, _stored(prose.answer(characters)))
        return import_json(history, export_json(draft)).chat_ids[0]


def _stored(text: str) -> Answer:
    tokens = len(text) // 4
    return Answer(
        content=text,
        token_ids=tuple(range(tokens)),
        rounds=tuple(Round(3, 4, 2, 31.25) for _ in range(tokens // 3)),
        stats={"completion_tokens": tokens, "decode_tps": 86.1, "acceptance_length": 3.4},
        draft={"requested": "mtp", "effective": "mtp"},
        finish_reason="stop",
    )
