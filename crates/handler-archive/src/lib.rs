//! Folders as archives, and archives nobody trusts back into folders.
//!
//! [`Packing`] makes a tar archive of a folder piece by piece, [`Unpacking`] takes one piece by piece; neither
//! waits for anything but the disk. With the feature `zip`, [`zip`] turns one form into the other.

mod error;
mod pack;
mod place;
pub mod stream;
pub mod tar;
mod unpack;
#[cfg(feature = "zip")]
pub mod zip;

pub use error::{ArchiveError, ErrorKind};
pub use pack::Packing;
pub use unpack::{Limits, Summary, Unpacking};

/// A name of any bytes as text for messages: what is not UTF-8 as `\xNN`, a backslash as `\\`.
#[must_use]
pub fn tell(name: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\\\"));
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}
