//! Files written whole, and private folders. Errors name the path.

use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Replaces `path` by `content` in one step: a reader sees the old or the new file, never half of one.
///
/// # Errors
/// Any file system error, with the path in its text; the old file is then untouched.
pub fn write_atomic(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "path without a file name"))?;
    let mut temp_name = std::ffi::OsString::from(".");
    temp_name.push(name);
    temp_name.push(format!(".{}", crate::random::hex(6)));
    let temp = path.with_file_name(temp_name);
    let result = (|| {
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&temp)?;
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        file.write_all(content)?;
        file.sync_data()?;
        std::fs::rename(&temp, path)
    })();
    if result.is_err() {
        std::fs::remove_file(&temp).ok();
    }
    result.map_err(|error| named(path, &error))
}

/// Makes a folder (and its parents) that only the caller can enter; an existing one is closed to others.
///
/// # Errors
/// Any file system error, with the path in its text.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .and_then(|()| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)))
        .map_err(|error| named(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_private() {
        let dir = tempfile::tempdir().expect("temp folder");
        let path = dir.path().join("a b.toml");
        write_atomic(&path, b"one", 0o600).expect("first");
        write_atomic(&path, b"two", 0o600).expect("second");
        assert_eq!(std::fs::read(&path).expect("read"), b"two");
        assert_eq!(
            std::fs::metadata(&path).expect("meta").permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 1);
    }

    #[test]
    fn an_error_names_the_path() {
        let error =
            write_atomic(Path::new("/proc/nonexistent/x"), b"", 0o600).expect_err("no folder");
        assert!(error.to_string().contains("/proc/nonexistent/x"));
    }
}
