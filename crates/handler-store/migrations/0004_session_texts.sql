-- What was said in sessions, for search, and what their turns used. All of it can be made again from the logs.
-- `seq` is the number of a message's first event, or of the event that ended the turn.

ALTER TABLE sessions ADD COLUMN archived INTEGER
    GENERATED ALWAYS AS (coalesce(json_extract(document, '$.archived'), 0)) VIRTUAL;

CREATE INDEX sessions_by_archived ON sessions (archived, created_ms, id);

CREATE TABLE session_messages (
    id          INTEGER NOT NULL PRIMARY KEY,
    session_id  TEXT    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    seq         INTEGER NOT NULL,
    role        TEXT    NOT NULL CHECK (role IN ('title', 'user', 'agent')),
    text        TEXT    NOT NULL,
    UNIQUE (session_id, seq, role)
) STRICT;

CREATE VIRTUAL TABLE session_words USING fts5 (
    text, content = 'session_messages', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2'
);

CREATE TRIGGER session_messages_added AFTER INSERT ON session_messages BEGIN
    INSERT INTO session_words (rowid, text) VALUES (new.id, new.text);
END;

CREATE TRIGGER session_messages_removed AFTER DELETE ON session_messages BEGIN
    INSERT INTO session_words (session_words, rowid, text) VALUES ('delete', old.id, old.text);
END;

-- Up to which event a session's log is in here, where the next one starts in its file, and the running cost there,
-- in millionths of `currency`.
CREATE TABLE session_indexed (
    session_id  TEXT    NOT NULL PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    seq         INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    cost        INTEGER NOT NULL,
    currency    TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- day: of the turn's end, `YYYY-MM-DD` in UTC. cost: millionths of `currency`.
CREATE TABLE session_turns (
    session_id  TEXT    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    seq         INTEGER NOT NULL,
    day         TEXT    NOT NULL,
    input       INTEGER NOT NULL,
    output      INTEGER NOT NULL,
    cached      INTEGER NOT NULL,
    cost        INTEGER NOT NULL,
    currency    TEXT    NOT NULL,
    PRIMARY KEY (session_id, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX session_turns_by_day ON session_turns (day);
