-- A history as the program left it whose last migration was 0001_chats_and_messages.
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
CREATE TABLE migrations (name TEXT NOT NULL UNIQUE, applied_at REAL NOT NULL);
INSERT INTO migrations (name, applied_at) VALUES
  ('0001_chats_and_messages', 1700000000.0);
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
