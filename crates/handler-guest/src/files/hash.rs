//! The hash of a file's content, without sending it.

use super::path;
use crate::conn::Conn;
use crate::fail;
use crate::failure::{from_errno, from_io};
use handler_types::guest::{GuestError, GuestErrorCode, Reply};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use sha2::{Digest as _, Sha256};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;

/// Bytes read between turns of others.
const STEP: usize = 256 * 1024;

/// A regular file to be hashed.
pub(crate) struct Hashing {
    text: String,
    file: File,
}

impl Hashing {
    /// Opens it; a link is followed.
    pub(crate) fn open(text: &str) -> Result<Self, GuestError> {
        let full = path::decode_absolute(text)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let failed = |errno| from_errno(text, errno);
        let file = open(OsStr::from_bytes(&full), flags, Mode::empty()).map_err(failed)?;
        let stat = fstat(&file).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            let message = format!("{text}: not a regular file");
            return Err(fail(GuestErrorCode::Invalid, message));
        }
        Ok(Self {
            text: text.to_owned(),
            file: file.into(),
        })
    }

    /// Reads all of it.
    pub(crate) async fn run(mut self, conn: &Conn) -> Result<Reply, GuestError> {
        let (mut hash, mut size) = (Sha256::new(), 0_u64);
        let mut buffer = vec![0; STEP];
        while !conn.is_closed() {
            let count = match self.file.read(&mut buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                result => result.map_err(|error| from_io(&self.text, &error))?,
            };
            if count == 0 {
                break;
            }
            hash.update(&buffer[..count]);
            size += count as u64;
            tokio::task::yield_now().await;
        }
        Ok(Reply::Written {
            size,
            sha256: crate::sys::hex(&hash.finalize()),
        })
    }
}
