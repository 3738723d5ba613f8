//! Uploads that go to a private file first: streamed, and refused before they fill the disk.

use super::problem::{ApiError, ApiResult};
use axum::body::Body;
use futures::StreamExt as _;
use handler_types::ProblemCode;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use tokio::io::AsyncWriteExt as _;

/// Left free on the disk whatever is uploaded, bytes.
const KEEP_FREE: u64 = 1024 * 1024 * 1024;
/// How often the free room is looked at, bytes.
const LOOK_EVERY: u64 = 64 * 1024 * 1024;

/// Writes a body to a new file.
///
/// # Errors
/// 507 when the disk would be left with less than 1 GiB; an upload that breaks off. The file stays for its owner
/// to remove.
pub(super) async fn receive(body: Body, path: &Path) -> ApiResult<u64> {
    let file = std::fs::File::options()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(|e| crate::app::builds::disk("the upload", &e))?;
    let mut file = tokio::fs::File::from_std(file);
    let mut pieces = body.into_data_stream();
    let (mut size, mut looked) = (0, None);
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| {
            ApiError::new(
                ProblemCode::Invalid,
                format!("the upload broke off: {error}"),
            )
        })?;
        if looked.is_none_or(|at| size >= at + LOOK_EVERY) {
            looked = Some(size);
            check_room(path)?;
        }
        size += piece.len() as u64;
        file.write_all(&piece)
            .await
            .map_err(|e| crate::app::builds::disk("the upload", &e))?;
    }
    file.flush()
        .await
        .map_err(|e| crate::app::builds::disk("the upload", &e))?;
    Ok(size)
}

fn check_room(path: &Path) -> ApiResult<()> {
    let folder = path.parent().unwrap_or(path);
    // Where the room cannot be told, the disk itself says when it is full.
    let Ok(disk) = rustix::fs::statvfs(folder) else {
        return Ok(());
    };
    if disk.f_bavail.saturating_mul(disk.f_frsize) > KEEP_FREE + LOOK_EVERY {
        return Ok(());
    }
    Err(ApiError::new(
        ProblemCode::NoSpace,
        "the disk of the state folder would be left with less than 1 GiB; make room and send it again",
    ))
}
