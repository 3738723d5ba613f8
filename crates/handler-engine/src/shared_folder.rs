//! Host folders that many instances write to (caches): how large they are, and emptying them.
//!
//! A folder's own path is the daemon's; what lies in it is whoever's who wrote it.

use crate::driver::DriverError;
use crate::remove_tree::empty_tree;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

/// How long a look at a large folder may take.
const PATIENCE: Duration = Duration::from_secs(300);

fn failed(what: &str, message: impl Into<String>) -> DriverError {
    DriverError::Failed {
        step: what.to_owned(),
        message: message.into(),
    }
}

/// Bytes on disk of what lies in a folder and of itself. `by` goes before the command: who can read all of it.
///
/// # Errors
/// [`DriverError::Failed`] when a part of it cannot be read.
pub async fn size(by: &[&str], folder: &Path) -> Result<u64, DriverError> {
    const WHAT: &str = "measure the folder";
    let output = run(WHAT, by, &["du", "-skx", "--"], folder, &[]).await?;
    let text = String::from_utf8_lossy(&output.stdout);
    let kib = text
        .split_whitespace()
        .next()
        .and_then(|word| word.parse::<u64>().ok());
    kib.map(|kib| kib * 1024)
        .ok_or_else(|| failed(WHAT, "its size cannot be understood"))
}

/// Empties a folder with the daemon's own rights; it stays.
///
/// # Errors
/// [`DriverError::Failed`]; what could be removed is gone.
pub async fn empty(folder: &Path) -> Result<(), DriverError> {
    const WHAT: &str = "empty the folder";
    let folder = folder.to_owned();
    tokio::task::spawn_blocking(move || empty_tree(&folder))
        .await
        .map_err(|_| failed(WHAT, "it ended early"))?
        .map_err(|error| failed(WHAT, error.to_string()))
}

/// Empties a folder with the rights of `by`; it stays.
///
/// # Errors
/// [`DriverError::Failed`]; what could be removed is gone.
pub async fn empty_by(by: &[&str], folder: &Path) -> Result<(), DriverError> {
    let rest = ["-xdev", "-mindepth", "1", "-delete"];
    run("empty the folder", by, &["find"], folder, &rest)
        .await
        .map(drop)
}

async fn run(
    what: &str,
    by: &[&str],
    command: &[&str],
    folder: &Path,
    rest: &[&str],
) -> Result<Output, DriverError> {
    let mut words = by.iter().chain(command);
    let Some(program) = words.next() else {
        return Err(failed(what, "there is no command"));
    };
    let run = handler_base::proc::command(program)
        .args(words)
        .arg(folder)
        .args(rest)
        .output();
    let output = tokio::time::timeout(PATIENCE, run)
        .await
        .map_err(|_| failed(what, "it takes too long"))?
        .map_err(|error| failed(what, format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last: String = said
        .lines()
        .last()
        .unwrap_or_default()
        .chars()
        .take(300)
        .collect();
    Err(failed(what, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_folder_is_measured_and_emptied_and_stays() {
        let temp = tempfile::tempdir().expect("temp");
        let folder = temp.path().join("cache");
        let outside = temp.path().join("outside");
        std::fs::create_dir_all(folder.join("a/b")).expect("folders");
        std::fs::write(&outside, vec![1_u8; 300_000]).expect("file");
        std::fs::write(folder.join("a/b/c"), vec![1_u8; 100_000]).expect("file");
        std::os::unix::fs::symlink(&outside, folder.join("link")).expect("link");
        let size_now = size(&[], &folder).await.expect("measured");
        assert!((100_000..200_000).contains(&size_now), "{size_now}");
        empty(&folder).await.expect("emptied");
        assert_eq!(std::fs::read_dir(&folder).expect("stays").count(), 0);
        assert!(outside.exists());
        std::fs::create_dir_all(folder.join("a/b")).expect("folders");
        empty_by(&["env"], &folder).await.expect("emptied");
        assert_eq!(std::fs::read_dir(&folder).expect("stays").count(), 0);
        assert!(size(&[], &temp.path().join("none")).await.is_err());
    }
}
