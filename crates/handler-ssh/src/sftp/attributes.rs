//! Attributes of files, and errors, as SFTP tells them.

use handler_engine::guest::GuestCallError;
use handler_types::guest::{FileEntry, FileKind, GuestErrorCode};
use russh_sftp::protocol::{FileAttributes, StatusCode};
use russh_sftp::server::StatusReply;

/// Type bits of a mode.
fn type_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::File => 0o100_000,
        FileKind::Folder => 0o040_000,
        FileKind::Link => 0o120_000,
        // A pipe: nothing a client would read or replace.
        FileKind::Other => 0o010_000,
    }
}

/// As the client gets them.
pub(crate) fn of_entry(entry: &FileEntry) -> FileAttributes {
    let seconds = u32::try_from(entry.modified_ms.div_euclid(1000)).unwrap_or(0);
    FileAttributes {
        size: Some(entry.size),
        uid: Some(entry.uid),
        gid: Some(entry.gid),
        permissions: Some(type_bits(entry.kind) | (entry.mode & 0o7777)),
        atime: Some(seconds),
        mtime: Some(seconds),
        ..FileAttributes::default()
    }
}

/// The guest's refusal as SFTP's.
pub(crate) fn error(error: &GuestCallError) -> StatusReply {
    let code = match error {
        GuestCallError::Refused(refused) => match refused.code {
            GuestErrorCode::NotFound => StatusCode::NoSuchFile,
            GuestErrorCode::Denied => StatusCode::PermissionDenied,
            _ => StatusCode::Failure,
        },
        _ => StatusCode::Failure,
    };
    code.with_message(error.to_string())
}
