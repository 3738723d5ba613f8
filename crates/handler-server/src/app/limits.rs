//! What this host hands out, from `limits.toml` and the environment; the file is read again when it changes.

use crate::config::LimitOverrides;
use handler_engine::LimitsSource;
use handler_store::limits::{self, LimitsError};
use handler_types::limits::Limits;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// What tells one content of the file from another; none: there is no file.
type Stamp = Option<(SystemTime, u64)>;

#[derive(Debug)]
struct Known {
    stamp: Stamp,
    limits: Arc<Limits>,
    problem: Option<String>,
}

/// The file. A content that cannot be read changes nothing: what held before holds on, and the problem is shown.
#[derive(Debug)]
pub struct LimitsFile {
    path: PathBuf,
    overrides: LimitOverrides,
    known: Mutex<Known>,
}

impl LimitsFile {
    /// Reads it for the first time.
    ///
    /// # Errors
    /// [`LimitsError`]: the daemon does not start with limits that it does not understand.
    pub fn open(path: PathBuf, overrides: LimitOverrides) -> Result<Self, LimitsError> {
        let stamp = stamp(&path);
        let limits = Arc::new(overrides.apply(limits::read(&path)?));
        let known = Known {
            stamp,
            limits,
            problem: None,
        };
        Ok(Self {
            path,
            overrides,
            known: Mutex::new(known),
        })
    }
}

fn stamp(path: &std::path::Path) -> Stamp {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.modified().ok()?, meta.len()))
}

impl LimitsSource for LimitsFile {
    fn now(&self) -> Arc<Limits> {
        let stamp = stamp(&self.path);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if stamp == known.stamp {
            return known.limits.clone();
        }
        known.stamp = stamp;
        match limits::read(&self.path) {
            Ok(limits) => {
                tracing::info!("limits.toml changed");
                known.limits = Arc::new(self.overrides.apply(limits));
                known.problem = None;
            }
            Err(error) => {
                tracing::warn!(%error, "limits.toml is unusable; the limits stay as they were");
                known.problem = Some(error.to_string());
            }
        }
        known.limits.clone()
    }

    fn problem(&self) -> Option<String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.problem.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_counts_at_once_and_a_broken_one_changes_nothing() {
        let folder = tempfile::tempdir().expect("temp");
        let path = folder.path().join("limits.toml");
        let overrides = LimitOverrides {
            running: Some(7),
            ..LimitOverrides::default()
        };
        let file = LimitsFile::open(path.clone(), overrides).expect("none is fine");
        assert_eq!(file.now().sandboxes, None);
        std::fs::write(&path, "sandboxes = 3\nrunning = 1\n").expect("write");
        assert_eq!(file.now().sandboxes, Some(3));
        assert_eq!(file.now().running, Some(7), "the environment wins");
        std::fs::write(&path, "sandboxes = 3\nrunning = 1\nnonsense = 1\n").expect("write");
        assert_eq!(file.now().sandboxes, Some(3));
        assert!(file.problem().expect("told").contains("nonsense"));
        std::fs::remove_file(&path).expect("remove");
        assert_eq!(file.now().sandboxes, None);
        assert_eq!(file.problem(), None);
        std::fs::write(&path, "nonsense = 1\n").expect("write");
        assert!(LimitsFile::open(path, LimitOverrides::default()).is_err());
    }
}
