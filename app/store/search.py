"""Full-text search over titles and messages. Any text is a valid query.

Words are looked up in the FTS5 indexes, without regard to case and accents, each as the beginning of a word; text in
double quotes is a phrase. What the index's tokenizer cannot split (scripts without spaces) or drops (symbols, as in
"C++" or "->") is compared literally.
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from dataclasses import dataclass

from app.store.db import Database
from app.store.errors import DamagedError
from app.store.records import Chat, SearchHit, storable
from app.store.rows import CHAT_COLUMNS, read_chat

_MAX_QUERY = 1_000
_MAX_TERMS = 16
_MAX_MATCHES = 2_000
"""Newest matching messages that are looked at; bounds the time of a query that matches nearly everything."""
_SNIPPET = 140
_LEAD = 40
_FOLDED = 50_000

_TERM = re.compile(r'"([^"]*)"|(\S+)')
_AROUND = ".,;:!?…'\"“”‘’«»()[]{}<>"
_WORD = re.compile(r"[^\W_]+")
# Thai, Lao, Myanmar, Khmer; kana; CJK ideographs with extensions and compatibility forms.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


@dataclass(frozen=True, slots=True)
class _Query:
    match: str
    """An FTS5 expression; empty when nothing can be looked up."""
    literals: tuple[str, ...]
    pattern: re.Pattern[str]
    """Finds the terms in folded text."""


def search(database: Database, text: str, limit: int = 50) -> list[SearchHit]:
    """Chats whose title, or one of whose messages, holds all terms; the newest update first.

    Answers that are being written are not found yet. An empty query finds nothing.
    """
    query = _parse(text)
    if query is None:
        return []
    try:
        return _search(database, query, limit)
    except DamagedError:
        if database.read_only:
            raise
        # The indexes hold nothing that the tables do not.
        with database.write() as connection:
            for index in ("message_index", "title_index"):
                connection.execute(f"INSERT INTO {index} ({index}) VALUES ('rebuild')")
        return _search(database, query, limit)


def terms_pattern(text: str) -> re.Pattern[str] | None:
    """Finds the terms of a query in folded text; None when it has none."""
    query = _parse(text)
    return None if query is None else query.pattern


def _search(database: Database, query: _Query, limit: int) -> list[SearchHit]:
    with database.read() as connection:
        titles = {chat_id for (chat_id,) in connection.execute(*_title_statement(query))}
        newest: dict[int, int] = {}
        for message_id, chat_id in connection.execute(*_message_statement(query)):
            newest.setdefault(chat_id, message_id)
        chats = _chats(connection, titles | newest.keys(), limit)
        return [
            _hit(connection, chat, query, titled=chat.id in titles, message_id=newest.get(chat.id)) for chat in chats
        ]


def _hit(
    connection: sqlite3.Connection, chat: Chat, query: _Query, *, titled: bool, message_id: int | None
) -> SearchHit:
    title_ranges = _ranges(chat.title, query) if titled else ()
    if message_id is None:
        return SearchHit(chat, title_ranges, None)
    (content,) = connection.execute("SELECT content FROM messages WHERE id = ?", (message_id,)).fetchone()
    snippet = _snippet(content, query)
    return SearchHit(chat, title_ranges, message_id, snippet, _ranges(snippet, query))


def _message_statement(query: _Query) -> tuple[str, list[str]]:
    if query.match:
        source, newest = "message_index i JOIN messages m ON m.id = i.rowid", "i.rowid"
    else:
        source, newest = "searchable_messages s JOIN messages m ON m.id = s.id", "m.id"
    sql = (
        f"SELECT m.id, m.chat_id FROM {source} JOIN chats c ON c.id = m.chat_id AND c.deleted_at IS NULL "
        f"WHERE {_condition('message_index', 'm.content', query)} ORDER BY {newest} DESC LIMIT {_MAX_MATCHES}"
    )
    return sql, _parameters(query)


def _title_statement(query: _Query) -> tuple[str, list[str]]:
    source = "title_index i JOIN chats c ON c.id = i.rowid" if query.match else "chats c"
    condition = _condition("title_index", "c.title", query)
    return f"SELECT c.id FROM {source} WHERE c.deleted_at IS NULL AND {condition}", _parameters(query)


def _condition(index: str, column: str, query: _Query) -> str:
    terms = [f"{index} MATCH ?"] if query.match else []
    terms += [f"{column} LIKE ? ESCAPE '\\'"] * len(query.literals)
    return " AND ".join(terms)


def _parameters(query: _Query) -> list[str]:
    escaped = (re.sub(r"([\\%_])", r"\\\1", literal) for literal in query.literals)
    return ([query.match] if query.match else []) + [f"%{literal}%" for literal in escaped]


def _chats(connection: sqlite3.Connection, ids: set[int], limit: int) -> list[Chat]:
    marks = ", ".join(str(int(chat_id)) for chat_id in ids)
    rows = connection.execute(
        f"SELECT {CHAT_COLUMNS} FROM chats c WHERE id IN ({marks}) ORDER BY updated_at DESC, id DESC LIMIT ?", (limit,)
    )
    return [read_chat(row) for row in rows]


def _parse(text: str) -> _Query | None:
    clean = unicodedata.normalize("NFC", storable(text[:_MAX_QUERY]))
    clean = "".join(" " if unicodedata.category(character) == "Cc" else character for character in clean)
    phrases: list[str] = []
    literals: list[str] = []
    patterns: list[str] = []
    for quoted, bare in _TERM.findall(clean)[:_MAX_TERMS]:
        term = quoted.strip() or bare
        words = _WORD.findall(term)
        if not term:
            continue
        # Quotes, brackets and the punctuation of a sentence around a word are not meant.
        core = term.strip(_AROUND) if words else term
        unspaced = _UNSPACED.search(core) is not None
        if words and not unspaced:
            star = "*" if core[-1].isalnum() and not quoted else ""
            phrases.append('"' + core.replace('"', '""') + '"' + star)
        if unspaced or not (core[0].isalnum() and core[-1].isalnum()):
            literals.append(core)
            patterns.append(re.escape(fold(core)))
        else:
            patterns.append(r"(?<![^\W_])" + r"[\W_]+".join(re.escape(fold(word)) for word in words))
    if not patterns:
        return None
    return _Query(" ".join(phrases), tuple(literals), re.compile("|".join(patterns), re.IGNORECASE))


class _Base(dict[int, int]):
    """Maps a character to its lower case without accents, always one to one, so that offsets stay."""

    def __missing__(self, code: int) -> int:
        base = unicodedata.normalize("NFD", chr(code).lower())[0].lower()
        self[code] = ord(base) if len(base) == 1 else code
        return self[code]


_BASE = _Base()


def fold(text: str) -> str:
    """`text` in lower case and without accents, character by character, so that offsets stay."""
    return text.translate(_BASE)


def _ranges(text: str, query: _Query) -> tuple[tuple[int, int], ...]:
    return tuple(match.span() for match in query.pattern.finditer(fold(text)))


def _snippet(content: str, query: _Query) -> str:
    """The surroundings of the first match on one line; the beginning when it lies too deep to be found cheaply."""
    match = query.pattern.search(content) or query.pattern.search(fold(content[:_FOLDED]))
    at = match.start() if match else 0
    start = max(0, at - _LEAD)
    if start and (space := re.search(r"\s", content[start:at])):
        start += space.end()
    # White space shrinks to one character each, so more is read than shown.
    shown = " ".join(content[start : start + 4 * _SNIPPET].split())
    cut = shown[:_SNIPPET].rstrip()
    more = len(cut) < len(shown) or start + 4 * _SNIPPET < len(content)
    return ("…" if start else "") + cut + ("…" if more else "")
