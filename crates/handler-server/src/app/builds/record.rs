//! What is kept of a build: a folder of its own with the record, the log and, while it runs, its context.
//!
//! The last builds are kept; older ones go with their folders. A build that was not over when the daemon ended
//! is failed by the next one.

use handler_base::clock::{now_ms, rfc3339};
use handler_types::BuildId;
use handler_types::build::{BuildKind, BuildState, BuildView};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Builds that are kept.
pub(super) const KEPT: usize = 20;

/// The record.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    pub(super) id: BuildId,
    pub(super) kind: BuildKind,
    pub(super) backend: String,
    pub(super) target: String,
    pub(super) state: BuildState,
    #[serde(default)]
    pub(super) step: Option<String>,
    #[serde(default)]
    pub(super) error: Option<String>,
    #[serde(default)]
    pub(super) image: Option<String>,
    #[serde(default)]
    pub(super) versions: Vec<String>,
    /// Images made so far that nobody needs unless the build succeeds.
    #[serde(default)]
    pub(super) made: Vec<String>,
    pub(super) created_ms: i64,
    #[serde(default)]
    pub(super) started_ms: Option<i64>,
    #[serde(default)]
    pub(super) ended_ms: Option<i64>,
}

impl Record {
    pub(super) fn new(kind: BuildKind, backend: &str, target: &str) -> Self {
        Self {
            id: BuildId::from_random(handler_base::random::bytes()),
            kind,
            backend: backend.to_owned(),
            target: target.chars().take(400).collect(),
            state: BuildState::Queued,
            step: None,
            error: None,
            image: None,
            versions: Vec::new(),
            made: Vec::new(),
            created_ms: now_ms(),
            started_ms: None,
            ended_ms: None,
        }
    }

    pub(super) fn view(&self, log_bytes: u64) -> BuildView {
        BuildView {
            id: self.id.clone(),
            kind: self.kind,
            backend: self.backend.clone(),
            target: self.target.clone(),
            state: self.state,
            step: self.step.clone().filter(|_| !self.state.is_over()),
            error: self.error.clone(),
            image: self.image.clone(),
            versions: self.versions.clone(),
            created_at: rfc3339(self.created_ms),
            started_at: self.started_ms.map(rfc3339),
            ended_at: self.ended_ms.map(rfc3339),
            log_bytes,
        }
    }

    /// Ends it.
    pub(super) fn over(&mut self, state: BuildState, error: Option<String>) {
        self.state = state;
        self.error = error;
        self.step = None;
        self.ended_ms = Some(now_ms());
    }
}

/// The folder of all builds.
#[derive(Debug, Clone)]
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    /// One build's folder.
    pub(super) fn of(&self, id: &BuildId) -> PathBuf {
        self.0.join(id.as_str())
    }

    pub(super) fn log(&self, id: &BuildId) -> PathBuf {
        self.of(id).join("log")
    }

    /// Where contexts and what builds need meanwhile lie: gone when the build is over.
    pub(super) fn work(&self, id: &BuildId) -> PathBuf {
        self.of(id).join("work")
    }

    /// Writes the record.
    ///
    /// # Errors
    /// A disk that does not take it.
    pub(super) fn save(&self, record: &Record) -> std::io::Result<()> {
        let folder = self.of(&record.id);
        handler_base::fs::create_private_dir(&folder)?;
        let text = serde_json::to_vec_pretty(record).map_err(std::io::Error::other)?;
        handler_base::fs::write_atomic(&folder.join("build.json"), &text, 0o600)
    }

    pub(super) fn remove(&self, id: &BuildId) {
        remove_tree(&self.of(id));
    }

    pub(super) fn remove_work(&self, id: &BuildId) {
        remove_tree(&self.work(id));
    }

    /// All records, oldest first. What cannot be read is no build any more and goes.
    pub(super) fn read_all(&self) -> Vec<Record> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut records: Vec<Record> = entries
            .filter_map(|entry| {
                let path = entry.path();
                let record = read(&path);
                if record.is_none() {
                    tracing::warn!(path = %path.display(), "not a build; it is removed");
                    remove_tree(&path);
                }
                record
            })
            .collect();
        records.sort_by_key(|record| record.created_ms);
        records
    }
}

fn read(folder: &Path) -> Option<Record> {
    let text = std::fs::read(folder.join("build.json")).ok()?;
    let record: Record = serde_json::from_slice(&text).ok()?;
    // A folder that was copied or renamed by hand must not speak for another build.
    (folder.file_name()?.to_str()? == record.id.as_str()).then_some(record)
}

fn remove_tree(path: &Path) {
    match std::fs::remove_dir_all(path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(path = %path.display(), %error, "a build's folder stays"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_found_again_and_strangers_go() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = Folder(dir.path().to_owned());
        let mut first = Record::new(BuildKind::Pull, "podman", "debian:13");
        first.created_ms = 1;
        let second = Record::new(BuildKind::Toolbox, "podman", "toolbox");
        folder.save(&second).expect("saved");
        folder.save(&first).expect("saved");
        std::fs::create_dir(dir.path().join("stranger")).expect("a folder");
        std::fs::create_dir_all(folder.work(&first.id)).expect("a folder");
        let ids: Vec<_> = folder.read_all().into_iter().map(|r| r.id).collect();
        assert_eq!(ids, [first.id.clone(), second.id.clone()]);
        assert!(!dir.path().join("stranger").exists());
        folder.remove_work(&first.id);
        folder.remove_work(&first.id);
        folder.remove(&second.id);
        assert_eq!(folder.read_all().len(), 1);
    }
}
