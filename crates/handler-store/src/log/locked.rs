//! A file that only one may use: locked while it is held.

use std::fs::File;
use std::io;
use std::ops::Deref;

/// A locked file.
#[derive(Debug)]
pub(super) struct LockedFile(File);

impl LockedFile {
    /// Locks a file; none when another has it.
    pub(super) fn new(file: File) -> io::Result<Option<Self>> {
        use rustix::fs::{FlockOperation, flock};
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Closing is not enough: a program being started at this moment still holds a copy of the
        // descriptor until it is executed, and with it the lock.
        rustix::fs::flock(&self.0, rustix::fs::FlockOperation::Unlock).ok();
    }
}
