//! What can go wrong with the database, in words that say whose turn it is.

use std::path::PathBuf;

/// Why the database could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A newer program wrote it.
    #[error(
        "{} has format {found} and this program knows formats up to {known}: use the newer program again; nothing was changed",
        path.display()
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format known here.
        known: u32,
    },
    /// It was made by something else.
    #[error("{} is not a database of Handler; nothing was changed", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A migration that was applied is not the one this program has under that number.
    #[error(
        "{} was made with another migration {number} than this program's: it comes from a different build; nothing was changed",
        path.display()
    )]
    ChangedMigration {
        /// The database.
        path: PathBuf,
        /// The migration.
        number: u32,
    },
    /// A migration failed; the database is as it was before that step.
    #[error("migration {number} ({name}) failed")]
    Migration {
        /// The migration.
        number: u32,
        /// Its name.
        name: &'static str,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// SQLite refused the file.
    #[error("{} cannot be opened", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// The file or the writer thread cannot be made.
    #[error("{} cannot be opened", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

/// Why a row could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another sandbox, or another agent of the project, has the name.
    #[error("the name `{name}` is taken")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// Another project has the folder.
    #[error("there is a project in {folder} already")]
    FolderTaken {
        /// The folder.
        folder: String,
    },
    /// A row with this id exists.
    #[error("{id} exists already")]
    IdTaken {
        /// The id.
        id: String,
    },
    /// No such row.
    #[error("{id} does not exist")]
    NotFound {
        /// The id.
        id: String,
    },
    /// A page cursor that this program did not make.
    #[error("the cursor is not one of this list: start again without it")]
    BadCursor,
    /// A stored value is not of the form it was written in.
    #[error("{column} of {id} in table {table} cannot be read: {detail}")]
    BadRow {
        /// The table.
        table: &'static str,
        /// The row.
        id: String,
        /// The column.
        column: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// A value cannot be written as JSON.
    #[error("a value cannot be stored")]
    Encode(#[from] serde_json::Error),
    /// No room on the disk of the database.
    #[error("no space left for the database")]
    NoSpace,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// SQLite failed.
    #[error("the database failed")]
    Sqlite(#[source] rusqlite::Error),
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) {
            return Self::NoSpace;
        }
        Self::Sqlite(error)
    }
}

/// Whether a unique rule was broken, and on which column.
pub(crate) fn broken_unique(error: &rusqlite::Error) -> Option<&str> {
    match error {
        rusqlite::Error::SqliteFailure(code, Some(text))
            if code.code == rusqlite::ErrorCode::ConstraintViolation =>
        {
            text.strip_prefix("UNIQUE constraint failed: ")
        }
        _ => None,
    }
}
