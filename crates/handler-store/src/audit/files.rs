//! Names of the log's files: by the number of their first line, so that names tell their order.

use std::io;
use std::path::{Path, PathBuf};

const PREFIX: &str = "audit-";
const SUFFIX: &str = ".jsonl";

/// The file whose first line has this number.
pub(super) fn path(folder: &Path, first: u64) -> PathBuf {
    folder.join(name(first))
}

/// Its name.
pub(super) fn name(first: u64) -> String {
    format!("{PREFIX}{first:020}{SUFFIX}")
}

/// Where a line that was cut off is kept.
pub(super) fn torn(folder: &Path, seq: u64) -> PathBuf {
    folder.join(format!("torn-{seq:020}"))
}

/// The files, oldest first.
///
/// # Errors
/// The disk's.
pub fn paths(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let all = list(folder)?;
    Ok(all.into_iter().map(|first| path(folder, first)).collect())
}

/// Numbers of the files' first lines, oldest first. A folder that is not there has none.
pub(super) fn list(folder: &Path) -> io::Result<Vec<u64>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| {
            let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
            digits.parse::<u64>().ok()
        });
        found.extend(number);
    }
    found.sort_unstable();
    Ok(found)
}
