-- Projects and their agents. `document` is what was said of it, in the form of the API.
CREATE TABLE projects (
    id          TEXT    NOT NULL PRIMARY KEY,
    folder      TEXT    NOT NULL UNIQUE,
    document    TEXT    NOT NULL,
    created_ms  INTEGER NOT NULL,
    updated_ms  INTEGER NOT NULL,
    used_ms     INTEGER
) STRICT;

-- name_key: the name in lower case, for agents of a project. project_id absent: outside projects.
CREATE TABLE agents (
    id          TEXT    NOT NULL PRIMARY KEY,
    project_id  TEXT    REFERENCES projects (id) ON DELETE CASCADE,
    name_key    TEXT,
    document    TEXT    NOT NULL,
    created_ms  INTEGER NOT NULL,
    updated_ms  INTEGER NOT NULL,
    used_ms     INTEGER
) STRICT;

CREATE UNIQUE INDEX agents_by_project ON agents (project_id, name_key) WHERE project_id IS NOT NULL;

-- The agent a session belongs to; the session outlives it.
ALTER TABLE sessions ADD COLUMN agent_id TEXT;

CREATE INDEX sessions_by_agent ON sessions (agent_id, created_ms, id) WHERE agent_id IS NOT NULL;
