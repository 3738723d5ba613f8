-- When a sandbox is removed (milliseconds since the epoch; absent: never), and whether it rests because nobody
-- used it (then whoever uses it may wake it).
ALTER TABLE sandboxes ADD COLUMN expires_ms INTEGER;
ALTER TABLE sandboxes ADD COLUMN idled INTEGER NOT NULL DEFAULT 0;
