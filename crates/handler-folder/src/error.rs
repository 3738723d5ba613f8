//! Why something in a folder is not shown or not changed.

use std::io;

/// Each text says what is wrong with the path, as the person wrote it.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The path is not one that is shown: absolute, a link, `.git`, not a regular file.
    #[error("{0}")]
    NotShown(String),
    /// Nothing is there.
    #[error("there is nothing at `{0}`")]
    NotFound(String),
    /// It is no longer what the person saw.
    #[error("{0}")]
    Changed(String),
    /// It cannot be done with this file.
    #[error("{0}")]
    Refused(String),
    /// The file system failed.
    #[error("`{path}`: {source}")]
    Io {
        /// The path in the folder.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl FolderError {
    pub(crate) fn of(path: &str, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                Self::NotFound(path.to_owned())
            }
            _ => Self::Io {
                path: path.to_owned(),
                source,
            },
        }
    }
}
