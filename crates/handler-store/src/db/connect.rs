//! Opens one connection with the settings every connection of this database has.

use rusqlite::{Connection, OpenFlags};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

/// How long a connection waits for another's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Statements kept ready per connection; more than this crate has.
const CACHED_STATEMENTS: usize = 64;

/// Makes the file private before SQLite writes to it; its side files take over its mode.
pub(super) fn touch(path: &Path) -> std::io::Result<()> {
    std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map(drop)
}

/// The one connection that writes.
pub(super) fn writer(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    db.pragma_update(None, "synchronous", "NORMAL")?;
    common(&db)?;
    Ok(db)
}

/// A connection that only reads.
pub(super) fn reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    db.pragma_update(None, "query_only", true)?;
    common(&db)?;
    Ok(db)
}

fn common(db: &Connection) -> rusqlite::Result<()> {
    db.pragma_update(None, "foreign_keys", true)?;
    // Memory for pages per connection, in KiB: the daemon is to stay small, and reads are short.
    db.pragma_update(None, "cache_size", -1024)?;
    // Names in the schema of a damaged file must not run code.
    db.pragma_update(None, "trusted_schema", false)?;
    db.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    Ok(())
}
