"""The schema as an append-only list of named steps.

A step that was released is never changed; what it got wrong, a later step mends. The names of the applied steps are
recorded in the table `migrations`, so that a file tells which program it needs: one that holds a name unknown here
was written by a newer version.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

_TOKENIZER = "tokenize = \"unicode61 remove_diacritics 2\", prefix = '1 2 3'"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: statements that run in order, inside the transaction of the whole upgrade."""

    name: str
    statements: tuple[str, ...]


MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        "0001_chats_and_messages",
        (
            """
            CREATE TABLE chats (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                title TEXT NOT NULL,
                pinned INTEGER NOT NULL DEFAULT 0,
                created_at REAL NOT NULL,
                updated_at REAL NOT NULL,
                deleted_at REAL,
                system_prompt TEXT NOT NULL DEFAULT '',
                settings TEXT NOT NULL DEFAULT '{}'
            )
            """,
            # parent_id does not cascade: SQLite stops at 1,000 nested cascades, and a chat may be deeper. Deferred, so
            # that the messages of a chat can go in any order.
            """
            CREATE TABLE messages (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                chat_id INTEGER NOT NULL REFERENCES chats (id),
                parent_id INTEGER REFERENCES messages (id) DEFERRABLE INITIALLY DEFERRED,
                active INTEGER NOT NULL,
                role TEXT NOT NULL,
                state TEXT NOT NULL,
                content TEXT NOT NULL,
                reasoning TEXT NOT NULL DEFAULT '',
                name TEXT,
                tool_calls TEXT NOT NULL DEFAULT '[]',
                tool_call_id TEXT,
                stats TEXT,
                draft TEXT,
                finish_reason TEXT,
                error TEXT,
                created_at REAL NOT NULL
            )
            """,
            "CREATE INDEX messages_of_chat ON messages (chat_id, parent_id, active)",
            "CREATE INDEX messages_by_parent ON messages (parent_id)",
            # Among the answers to one message, and among the first messages of a chat, one is on the active path.
            "CREATE UNIQUE INDEX active_child ON messages (parent_id) WHERE active = 1 AND parent_id IS NOT NULL",
            "CREATE UNIQUE INDEX active_root ON messages (chat_id) WHERE active = 1 AND parent_id IS NULL",
            "CREATE INDEX streaming_messages ON messages (id) WHERE state = 'streaming'",
            # Apart from the messages, so that a transcript opens without reading them.
            """
            CREATE TABLE traces (
                message_id INTEGER PRIMARY KEY REFERENCES messages (id),
                token_ids BLOB NOT NULL,
                rounds TEXT NOT NULL
            )
            """,
        ),
    ),
    Migration(
        "0002_search",
        (
            # Text that is still being streamed is left out: indexing it again at every save would cost more than the
            # save. A view makes the index's own rebuild follow the same rule.
            "CREATE VIEW searchable_messages AS SELECT id, content FROM messages WHERE state <> 'streaming'",
            f"""
            CREATE VIRTUAL TABLE message_index USING fts5 (
                content, content = 'searchable_messages', content_rowid = 'id', {_TOKENIZER}
            )
            """,
            f"""
            CREATE VIRTUAL TABLE title_index USING fts5 (
                title, content = 'chats', content_rowid = 'id', {_TOKENIZER}
            )
            """,
            """
            CREATE TRIGGER index_new_message AFTER INSERT ON messages WHEN new.state <> 'streaming' BEGIN
                INSERT INTO message_index (rowid, content) VALUES (new.id, new.content);
            END
            """,
            """
            CREATE TRIGGER index_changed_message AFTER UPDATE OF content, state ON messages BEGIN
                INSERT INTO message_index (message_index, rowid, content)
                    SELECT 'delete', old.id, old.content WHERE old.state <> 'streaming';
                INSERT INTO message_index (rowid, content)
                    SELECT new.id, new.content WHERE new.state <> 'streaming';
            END
            """,
            """
            CREATE TRIGGER unindex_message AFTER DELETE ON messages WHEN old.state <> 'streaming' BEGIN
                INSERT INTO message_index (message_index, rowid, content) VALUES ('delete', old.id, old.content);
            END
            """,
            """
            CREATE TRIGGER index_new_chat AFTER INSERT ON chats BEGIN
                INSERT INTO title_index (rowid, title) VALUES (new.id, new.title);
            END
            """,
            """
            CREATE TRIGGER index_renamed_chat AFTER UPDATE OF title ON chats BEGIN
                INSERT INTO title_index (title_index, rowid, title) VALUES ('delete', old.id, old.title);
                INSERT INTO title_index (rowid, title) VALUES (new.id, new.title);
            END
            """,
            """
            CREATE TRIGGER unindex_chat AFTER DELETE ON chats BEGIN
                INSERT INTO title_index (title_index, rowid, title) VALUES ('delete', old.id, old.title);
            END
            """,
            "INSERT INTO message_index (message_index) VALUES ('rebuild')",
            "INSERT INTO title_index (title_index) VALUES ('rebuild')",
        ),
    ),
    Migration(
        "0003_origin_of_answers",
        (
            "ALTER TABLE messages ADD COLUMN model TEXT NOT NULL DEFAULT ''",
            "ALTER TABLE messages ADD COLUMN options TEXT NOT NULL DEFAULT '{}'",
            "ALTER TABLE messages ADD COLUMN reasoning_s REAL",
            "ALTER TABLE messages ADD COLUMN reasoning_tokens INTEGER",
        ),
    ),
    Migration(
        "0004_unsent_text",
        ("CREATE TABLE unsent (chat_id INTEGER PRIMARY KEY REFERENCES chats (id), content TEXT NOT NULL)",),
    ),
    Migration(
        "0005_unsent_while_typing",
        (
            "ALTER TABLE unsent RENAME TO unsent_of_chats",
            # Without a chat: on the page of a new one. in_sight: stored while it was typed, and not left since.
            """
            CREATE TABLE unsent (
                chat_id INTEGER UNIQUE REFERENCES chats (id),
                content TEXT NOT NULL,
                in_sight INTEGER NOT NULL
            )
            """,
            "INSERT INTO unsent (chat_id, content, in_sight) SELECT chat_id, content, 0 FROM unsent_of_chats",
            "DROP TABLE unsent_of_chats",
        ),
    ),
)


_USES = (
    "SELECT id, title, pinned, created_at, updated_at, deleted_at, system_prompt, settings FROM chats",
    "SELECT id, chat_id, parent_id, active, role, state, content, reasoning, name, tool_calls FROM messages",
    "SELECT tool_call_id, stats, draft, finish_reason, error, created_at, model, options FROM messages",
    "SELECT reasoning_s, reasoning_tokens FROM messages",
    "SELECT message_id, token_ids, rounds FROM traces",
    "SELECT chat_id, content, in_sight FROM unsent",
    "SELECT id, content FROM searchable_messages",
    "SELECT rowid FROM message_index WHERE message_index MATCH 'a'",
    "SELECT rowid FROM title_index WHERE title_index MATCH 'a'",
    # With their triggers.
    "INSERT INTO chats DEFAULT VALUES",
    "UPDATE chats SET title = ''",
    "DELETE FROM chats",
    "INSERT INTO messages DEFAULT VALUES",
    "UPDATE messages SET content = '', state = ''",
    "DELETE FROM messages",
)


def check_usable(connection: sqlite3.Connection) -> None:
    """Prepares what the program does with an up-to-date schema, and runs nothing of it.

    SQLite's own checks do not look at the text of the schema, in which a byte may have been changed like in any other.

    Raises:
        sqlite3.OperationalError: a name in it is not what it was.
    """
    if applied(connection) == tuple(migration.name for migration in MIGRATIONS):
        for statement in _USES:
            connection.execute(f"EXPLAIN {statement}").close()


def applied(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Names of the steps that the database has been through, oldest first; empty for a new file."""
    known = connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'migrations'").fetchone()
    if known is None:
        return ()
    return tuple(name for (name,) in connection.execute("SELECT name FROM migrations ORDER BY rowid"))


def unknown(names: Sequence[str], migrations: Sequence[Migration] = MIGRATIONS) -> tuple[str, ...]:
    """Those of the applied steps that only a newer version knows."""
    ours = {migration.name for migration in migrations}
    return tuple(name for name in names if name not in ours)


def pending(names: Sequence[str], migrations: Sequence[Migration] = MIGRATIONS) -> tuple[Migration, ...]:
    """The steps that are still to be taken."""
    done = set(names)
    return tuple(migration for migration in migrations if migration.name not in done)


def migrate(connection: sqlite3.Connection, now: float, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Takes all pending steps; the caller holds a write transaction, so that all of them happen or none."""
    connection.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT NOT NULL UNIQUE, applied_at REAL NOT NULL)")
    for migration in pending(applied(connection), migrations):
        for statement in migration.statements:
            connection.execute(statement)
        connection.execute("INSERT INTO migrations (name, applied_at) VALUES (?, ?)", (migration.name, now))
