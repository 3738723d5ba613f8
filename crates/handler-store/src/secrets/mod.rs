//! Secret values at rest and where references to them lead.
//!
//! Values lie sealed (XChaCha20-Poly1305) in one file; its key lies in another, in another folder. A
//! value is opened when it is asked for and overwritten when it is dropped. It is never in an error, a
//! log line or a `Debug` text.

mod command;
mod key;
mod path;
mod resolve;
mod sealed;
mod store;

use std::io;
use std::path::PathBuf;

pub use path::check_path;
pub use resolve::ResolveError;
pub use store::SecretStore;

/// Longest value, in bytes.
pub const MAX_VALUE: usize = 64 * 1024;
/// Longest description, in characters.
pub const MAX_DESCRIPTION: usize = 500;
/// Most secrets in the store.
pub const MAX_SECRETS: usize = 1000;

/// Why a secret could not be kept or given. Never holds a value.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// Not a path of a secret.
    #[error("not a secret path: {rule}")]
    InvalidPath {
        /// The broken rule.
        rule: &'static str,
    },
    /// A value is empty or longer than [`MAX_VALUE`].
    #[error("a secret has 1 byte to 64 KiB; this one has {bytes} bytes")]
    InvalidLength {
        /// Its length.
        bytes: usize,
    },
    /// A description is longer than [`MAX_DESCRIPTION`].
    #[error("a description has at most 500 characters")]
    LongDescription,
    /// [`MAX_SECRETS`] are kept already.
    #[error("there are 1000 secrets already: remove one first")]
    TooMany,
    /// The file of sealed secrets is there and its key is not.
    #[error(
        "the secrets in {} cannot be opened: their key {} is missing; bring it back, or move the secrets file away and set the secrets again",
        file.display(), key.display()
    )]
    KeyMissing {
        /// The sealed file.
        file: PathBuf,
        /// The key file.
        key: PathBuf,
    },
    /// The key file is not private, or not a key.
    #[error("{} cannot be used as a key: {reason}", key.display())]
    BadKey {
        /// The key file.
        key: PathBuf,
        /// What is wrong.
        reason: &'static str,
    },
    /// The sealed file was changed by something else, or was sealed with another key.
    #[error(
        "the secrets in {} cannot be opened: the file was changed or belongs to another key; bring back the right file or key, or move the file away and set the secrets again",
        file.display()
    )]
    Unopenable {
        /// The sealed file.
        file: PathBuf,
    },
    /// The sealed file is not in a form this program knows.
    #[error("{} is not a file of secrets this program can read: {reason}", file.display())]
    BadFile {
        /// The sealed file.
        file: PathBuf,
        /// What is wrong.
        reason: &'static str,
    },
    /// The file system failed.
    #[error("{} cannot be used", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The runtime is being stopped.
    #[error("the secret store is stopping")]
    Stopping,
}
