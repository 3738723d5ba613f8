-- Times are milliseconds since the epoch. Lists go newest first: (created_ms, id) is the order of every page.

CREATE TABLE sandboxes (
    id          TEXT    NOT NULL PRIMARY KEY,
    name        TEXT    UNIQUE,
    backend     TEXT    NOT NULL,
    spec        TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    intent      TEXT    NOT NULL CHECK (intent IN ('run', 'stop', 'delete')),
    instance    TEXT,
    warnings    TEXT    NOT NULL,
    error       TEXT,
    session_id  TEXT,
    created_ms  INTEGER NOT NULL,
    updated_ms  INTEGER NOT NULL
) STRICT;

CREATE INDEX sandboxes_by_age ON sandboxes (created_ms, id);
CREATE INDEX sandboxes_by_state ON sandboxes (state, created_ms, id);
CREATE INDEX sandboxes_by_backend ON sandboxes (backend, created_ms, id);
CREATE INDEX sandboxes_by_session ON sandboxes (session_id) WHERE session_id IS NOT NULL;

-- Labels of `spec`, once more, in the order of a page.
CREATE TABLE sandbox_labels (
    key         TEXT    NOT NULL,
    value       TEXT    NOT NULL,
    created_ms  INTEGER NOT NULL,
    sandbox_id  TEXT    NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    PRIMARY KEY (key, value, created_ms, sandbox_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX sandbox_labels_by_sandbox ON sandbox_labels (sandbox_id);

CREATE TABLE sessions (
    id          TEXT    NOT NULL PRIMARY KEY,
    scope       TEXT    NOT NULL,
    harness     TEXT    NOT NULL,
    provider    TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    document    TEXT    NOT NULL,
    created_ms  INTEGER NOT NULL,
    updated_ms  INTEGER NOT NULL
) STRICT;

CREATE INDEX sessions_by_age ON sessions (created_ms, id);
CREATE INDEX sessions_by_scope ON sessions (scope, created_ms, id);
CREATE INDEX sessions_by_state ON sessions (state, created_ms, id);

-- status: absent while the request is under way. response: absent when it was too large to keep.
CREATE TABLE idempotency (
    key           TEXT    NOT NULL,
    method        TEXT    NOT NULL,
    path          TEXT    NOT NULL,
    body_hash     BLOB    NOT NULL,
    status        INTEGER,
    content_type  TEXT,
    response      BLOB,
    created_ms    INTEGER NOT NULL,
    PRIMARY KEY (key, method, path)
) STRICT;

CREATE INDEX idempotency_by_age ON idempotency (created_ms);
CREATE INDEX idempotency_under_way ON idempotency (created_ms) WHERE status IS NULL;

CREATE TABLE kv (
    key    TEXT NOT NULL PRIMARY KEY,
    value  TEXT NOT NULL
) STRICT, WITHOUT ROWID;
