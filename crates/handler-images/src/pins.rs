//! Which sandboxes use which images: a file a sandbox, written before it starts, removed with it.

use crate::digest::Digest;
use crate::folders::Folders;
use std::io;
use std::path::PathBuf;

/// Notes that a sandbox uses these images.
pub(crate) fn write(
    folders: &Folders,
    owner: &str,
    sandbox: &str,
    ids: &[Digest],
) -> io::Result<()> {
    let folder = folders.pins().join(plain(owner)?);
    handler_base::fs::create_private_dir(&folder)?;
    let path = folder.join(plain(sandbox)?);
    let text = serde_json::to_vec(ids)?;
    if std::fs::read(&path).is_ok_and(|before| before == text) {
        return Ok(());
    }
    handler_base::fs::write_atomic(&path, &text, 0o600)
}

/// Forgets a sandbox.
pub(crate) fn remove(folders: &Folders, owner: &str, sandbox: &str) -> io::Result<()> {
    let path = folders.pins().join(plain(owner)?).join(plain(sandbox)?);
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Sandboxes of this owner that use images.
pub(crate) fn of_owner(folders: &Folders, owner: &str) -> Vec<String> {
    let Ok(owner) = plain(owner) else {
        return Vec::new();
    };
    names(folders.pins().join(owner))
}

/// All pairs of sandbox and image.
pub(crate) fn all(folders: &Folders) -> Vec<(String, Digest)> {
    let mut all = Vec::new();
    for owner in names(folders.pins()) {
        let folder = folders.pins().join(owner);
        for sandbox in names(folder.clone()) {
            let read = std::fs::read(folder.join(&sandbox)).ok();
            let ids: Option<Vec<Digest>> = read.and_then(|text| serde_json::from_slice(&text).ok());
            all.extend(ids.into_iter().flatten().map(|id| (sandbox.clone(), id)));
        }
    }
    all
}

/// Plain names in a folder; what is being written starts with a dot.
fn names(folder: PathBuf) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect()
}

/// A text that is one file name.
fn plain(name: &str) -> io::Result<&str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if !name.is_empty() && name.len() <= 128 && name.bytes().all(is_plain) {
        Ok(name)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{name:?} is no plain name"),
        ))
    }
}
