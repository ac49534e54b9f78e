-- A history as the program left it whose last migration was 0004_unsent_text.
CREATE TABLE chats (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    title TEXT NOT NULL,
    pinned INTEGER NOT NULL DEFAULT 0,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    deleted_at REAL,
    system_prompt TEXT NOT NULL DEFAULT '',
    settings TEXT NOT NULL DEFAULT '{}'
);
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
);
CREATE INDEX messages_of_chat ON messages (chat_id, parent_id, active);
CREATE INDEX messages_by_parent ON messages (parent_id);
CREATE UNIQUE INDEX active_child ON messages (parent_id) WHERE active = 1 AND parent_id IS NOT NULL;
CREATE UNIQUE INDEX active_root ON messages (chat_id) WHERE active = 1 AND parent_id IS NULL;
CREATE INDEX streaming_messages ON messages (id) WHERE state = 'streaming';
CREATE TABLE traces (
    message_id INTEGER PRIMARY KEY REFERENCES messages (id),
    token_ids BLOB NOT NULL,
    rounds TEXT NOT NULL
);
CREATE VIEW searchable_messages AS SELECT id, content FROM messages WHERE state <> 'streaming';
CREATE VIRTUAL TABLE message_index USING fts5 (
    content, content = 'searchable_messages', content_rowid = 'id', tokenize = "unicode61 remove_diacritics 2", prefix = '1 2 3'
);
CREATE VIRTUAL TABLE title_index USING fts5 (
    title, content = 'chats', content_rowid = 'id', tokenize = "unicode61 remove_diacritics 2", prefix = '1 2 3'
);
CREATE TRIGGER index_new_message AFTER INSERT ON messages WHEN new.state <> 'streaming' BEGIN
    INSERT INTO message_index (rowid, content) VALUES (new.id, new.content);
END;
CREATE TRIGGER index_changed_message AFTER UPDATE OF content, state ON messages BEGIN
    INSERT INTO message_index (message_index, rowid, content)
        SELECT 'delete', old.id, old.content WHERE old.state <> 'streaming';
    INSERT INTO message_index (rowid, content)
        SELECT new.id, new.content WHERE new.state <> 'streaming';
END;
CREATE TRIGGER unindex_message AFTER DELETE ON messages WHEN old.state <> 'streaming' BEGIN
    INSERT INTO message_index (message_index, rowid, content) VALUES ('delete', old.id, old.content);
END;
CREATE TRIGGER index_new_chat AFTER INSERT ON chats BEGIN
    INSERT INTO title_index (rowid, title) VALUES (new.id, new.title);
END;
CREATE TRIGGER index_renamed_chat AFTER UPDATE OF title ON chats BEGIN
    INSERT INTO title_index (title_index, rowid, title) VALUES ('delete', old.id, old.title);
    INSERT INTO title_index (rowid, title) VALUES (new.id, new.title);
END;
CREATE TRIGGER unindex_chat AFTER DELETE ON chats BEGIN
    INSERT INTO title_index (title_index, rowid, title) VALUES ('delete', old.id, old.title);
END;
INSERT INTO message_index (message_index) VALUES ('rebuild');
INSERT INTO title_index (title_index) VALUES ('rebuild');
ALTER TABLE messages ADD COLUMN model TEXT NOT NULL DEFAULT '';
ALTER TABLE messages ADD COLUMN options TEXT NOT NULL DEFAULT '{}';
ALTER TABLE messages ADD COLUMN reasoning_s REAL;
ALTER TABLE messages ADD COLUMN reasoning_tokens INTEGER;
CREATE TABLE unsent (chat_id INTEGER PRIMARY KEY REFERENCES chats (id), content TEXT NOT NULL);
CREATE TABLE migrations (name TEXT NOT NULL UNIQUE, applied_at REAL NOT NULL);
INSERT INTO migrations (name, applied_at) VALUES
  ('0001_chats_and_messages', 1700000000.0),
  ('0002_search', 1700000000.0),
  ('0003_origin_of_answers', 1700000000.0),
  ('0004_unsent_text', 1700000000.0);
INSERT INTO chats (id, title, pinned, created_at, updated_at, deleted_at, system_prompt, settings) VALUES
  (1, 'Tide pools', 1, 1700000000.5, 1700000100.25, NULL, 'Answer in verse.', '{"temperature":0.2}'),
  (2, 'Pancakes', 0, 1700000200.0, 1700000300.0, 1700000400.0, '', '{}'),
  (5, '', 0, 1700000500.0, 1700000500.0, NULL, '', '{}');
INSERT INTO messages (id, chat_id, parent_id, active, role, state, content, reasoning, name, tool_calls, tool_call_id, stats, draft, finish_reason, error, created_at) VALUES
  (1, 1, NULL, 0, 'user', 'done', 'Write a haiku about tide pools', '', NULL, '[]', NULL, NULL, NULL, NULL, NULL, 1700000001.0),
  (2, 1, 1, 1, 'assistant', 'done', 'Small pools hold the sky', 'Five, seven, five.', NULL, '[]', NULL, '{"prompt_tokens":9,"cached_tokens":0,"completion_tokens":3,"rounds":1,"drafted":2,"accepted":2,"plain_steps":0,"near_ties":0,"acceptance_length":3.0}', '{"requested":"mtp","effective":"mtp","reason":null,"schedule":"stateful","block_size":3}', 'stop', NULL, 1700000002.0),
  (3, 1, NULL, 1, 'user', 'done', 'Écris un haïku', '', NULL, '[]', NULL, NULL, NULL, NULL, NULL, 1700000003.0),
  (4, 1, 3, 0, 'assistant', 'failed', '', '', NULL, '[]', NULL, NULL, NULL, NULL, 'No model is loaded.', 1700000004.0),
  (5, 1, 3, 1, 'assistant', 'streaming', 'Le ciel dans les fla', '', NULL, '[]', NULL, NULL, NULL, NULL, NULL, 1700000005.0),
  (6, 2, NULL, 1, 'user', 'done', 'Pancakes for two', '', NULL, '[]', NULL, NULL, NULL, NULL, NULL, 1700000201.0);
INSERT INTO traces (message_id, token_ids, rounds) VALUES
  (2, X'0700000001000000FFFF0000', '[[3,2,2,12.5]]'),
  (5, X'05000000', '[]');
UPDATE messages SET model = 'inkstand-demo', options = '{"effort":"high"}', reasoning_s = 0.4, reasoning_tokens = 21 WHERE id = 2;
INSERT INTO unsent (chat_id, content) VALUES (1, 'And one about');
