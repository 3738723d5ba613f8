//! Brings a database to the newest format: numbered steps, one transaction each, checked by checksum.
//!
//! Invariant: `PRAGMA user_version` is the number of the last step applied, and table `migrations` holds
//! the checksum of each. Steps are only ever added. Nothing is changed in a database that is newer than
//! the program, of another program, or made by other steps.

use super::error::OpenError;
use rusqlite::{Connection, TransactionBehavior};
use sha2::{Digest as _, Sha256};
use std::path::Path;

/// Marks a file as ours: "Hndl".
const APPLICATION_ID: i32 = 0x486e_646c;

/// One step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Migration {
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// All steps, oldest first; the first has number 1.
pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration {
        name: "base",
        sql: include_str!("../../migrations/0001_base.sql"),
    },
    Migration {
        name: "lifetime",
        sql: include_str!("../../migrations/0002_lifetime.sql"),
    },
    Migration {
        name: "agents",
        sql: include_str!("../../migrations/0003_agents.sql"),
    },
    Migration {
        name: "session texts",
        sql: include_str!("../../migrations/0004_session_texts.sql"),
    },
];

/// Applies what is missing; returns the format reached.
pub(crate) fn migrate(
    db: &mut Connection,
    path: &Path,
    steps: &[Migration],
) -> Result<u32, OpenError> {
    let sqlite = |source| OpenError::Sqlite {
        path: path.to_owned(),
        source,
    };
    let found = check_owner(db, path)?;
    let known = u32::try_from(steps.len()).unwrap_or(u32::MAX);
    if found > known {
        return Err(OpenError::Newer {
            path: path.to_owned(),
            found,
            known,
        });
    }
    check_applied(db, path, steps, found)?;
    for (number, step) in (1..).zip(steps).skip(found as usize) {
        apply(db, number, step).map_err(|source| OpenError::Migration {
            number,
            name: step.name,
            source,
        })?;
        tracing::info!(number, name = step.name, "migrated the database");
    }
    pragma(db, "user_version").map_err(sqlite)
}

fn pragma(db: &Connection, name: &str) -> rusqlite::Result<u32> {
    db.pragma_query_value(None, name, |row| row.get(0))
}

fn check_owner(db: &Connection, path: &Path) -> Result<u32, OpenError> {
    let read = || -> rusqlite::Result<(i32, u32, u32)> {
        let id = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
        let version = pragma(db, "user_version")?;
        let tables = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        Ok((id, version, tables))
    };
    match read() {
        Ok((APPLICATION_ID, version, _)) => Ok(version),
        Ok((0, 0, 0)) => Ok(0),
        Ok(_) => Err(OpenError::Foreign {
            path: path.to_owned(),
        }),
        Err(source) => match source.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => Err(OpenError::Foreign {
                path: path.to_owned(),
            }),
            _ => Err(OpenError::Sqlite {
                path: path.to_owned(),
                source,
            }),
        },
    }
}

fn checksum(step: &Migration) -> Vec<u8> {
    Sha256::digest(step.sql.as_bytes()).to_vec()
}

fn check_applied(
    db: &Connection,
    path: &Path,
    steps: &[Migration],
    found: u32,
) -> Result<(), OpenError> {
    for (number, step) in (1..=found).zip(steps) {
        let stored: Vec<u8> = db
            .query_row(
                "SELECT sha256 FROM migrations WHERE number = ?1",
                [number],
                |row| row.get(0),
            )
            .map_err(|source| OpenError::Sqlite {
                path: path.to_owned(),
                source,
            })?;
        if stored != checksum(step) {
            return Err(OpenError::ChangedMigration {
                path: path.to_owned(),
                number,
            });
        }
    }
    Ok(())
}

fn apply(db: &mut Connection, number: u32, step: &Migration) -> rusqlite::Result<()> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if number == 1 {
        tx.execute_batch(
            "CREATE TABLE migrations (
                number INTEGER NOT NULL PRIMARY KEY,
                name TEXT NOT NULL,
                sha256 BLOB NOT NULL,
                applied_ms INTEGER NOT NULL
            ) STRICT;",
        )?;
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    tx.execute_batch(step.sql)?;
    tx.execute(
        "INSERT INTO migrations (number, name, sha256, applied_ms) VALUES (?1, ?2, ?3, ?4)",
        (
            number,
            step.name,
            checksum(step),
            handler_base::clock::now_ms(),
        ),
    )?;
    tx.pragma_update(None, "user_version", number)?;
    tx.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Migration = Migration {
        name: "one",
        sql: "CREATE TABLE a (x INTEGER) STRICT;",
    };
    const TWO: Migration = Migration {
        name: "two",
        sql: "CREATE TABLE b (y INTEGER) STRICT; INSERT INTO a VALUES (2);",
    };
    const BROKEN: Migration = Migration {
        name: "broken",
        sql: "CREATE TABLE c (z INTEGER) STRICT; INSERT INTO nowhere VALUES (1);",
    };

    fn memory() -> Connection {
        Connection::open_in_memory().expect("memory database")
    }

    fn run(db: &mut Connection, steps: &[Migration]) -> Result<u32, OpenError> {
        migrate(db, Path::new("test.db"), steps)
    }

    fn has_table(db: &Connection, name: &str) -> bool {
        db.query_row(
            "SELECT count(*) FROM sqlite_schema WHERE name = ?1",
            [name],
            |row| row.get::<_, u32>(0),
        )
        .expect("schema")
            == 1
    }

    #[test]
    fn steps_are_applied_once_and_later_ones_added() {
        let mut db = memory();
        assert_eq!(run(&mut db, &[ONE]).expect("first"), 1);
        assert_eq!(run(&mut db, &[ONE]).expect("again"), 1);
        assert_eq!(run(&mut db, &[ONE, TWO]).expect("second"), 2);
        let rows: u32 = db
            .query_row("SELECT count(*) FROM a", [], |row| row.get(0))
            .expect("count");
        assert_eq!(rows, 1);
    }

    #[test]
    fn a_failed_step_leaves_the_format_before_it() {
        let mut db = memory();
        let error = run(&mut db, &[ONE, BROKEN, TWO]).expect_err("broken");
        assert!(
            matches!(error, OpenError::Migration { number: 2, .. }),
            "{error}"
        );
        assert_eq!(pragma(&db, "user_version").expect("version"), 1);
        assert!(has_table(&db, "a"));
        assert!(!has_table(&db, "c"));
        assert_eq!(run(&mut db, &[ONE, TWO]).expect("mended"), 2);
    }

    #[test]
    fn a_newer_database_is_refused_and_kept() {
        let mut db = memory();
        run(&mut db, &[ONE, TWO]).expect("newer program");
        let error = run(&mut db, &[ONE]).expect_err("older program");
        assert!(matches!(
            error,
            OpenError::Newer {
                found: 2,
                known: 1,
                ..
            }
        ));
        assert!(error.to_string().contains("newer program"), "{error}");
        assert!(has_table(&db, "b"));
    }

    #[test]
    fn a_changed_step_is_noticed() {
        let mut db = memory();
        run(&mut db, &[ONE]).expect("first");
        let other = Migration {
            name: "one",
            sql: "CREATE TABLE a (x TEXT) STRICT;",
        };
        assert!(matches!(
            run(&mut db, &[other, TWO]),
            Err(OpenError::ChangedMigration { number: 1, .. })
        ));
        assert!(!has_table(&db, "b"));
    }

    #[test]
    fn another_programs_database_is_refused() {
        let mut db = memory();
        db.execute_batch("CREATE TABLE theirs (x);")
            .expect("theirs");
        assert!(matches!(
            run(&mut db, &[ONE]),
            Err(OpenError::Foreign { .. })
        ));
    }
}
