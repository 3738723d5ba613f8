//! How a folder was when its session started, and what changed since.

use crate::open::{Kind, Root, Stat};
use crate::walk::{Limits, Walked, is_ignored, walk};
use handler_types::session_folder::FileChange;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is recorded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Baseline {
    /// When, milliseconds since the epoch.
    pub since_ms: i64,
    /// The folder is a Git repository.
    #[serde(default)]
    pub is_git: bool,
    /// The commit its HEAD was at.
    #[serde(default)]
    pub commit: Option<String>,
    /// There were too many files to follow: none is recorded.
    #[serde(default)]
    pub not_followed: bool,
    /// Files and links.
    #[serde(default)]
    pub files: BTreeMap<String, Stat>,
    /// The `.gitignore` files that counted, by their folder's path. They count on: a file does not become new because
    /// it is no longer ignored.
    #[serde(default)]
    pub ignores: BTreeMap<String, String>,
}

/// A file that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Its path.
    pub path: String,
    /// How.
    pub change: FileChange,
    /// When, nanoseconds since the epoch; unknown for what is gone.
    pub at: Option<i64>,
}

/// What changed in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// By path.
    pub files: Vec<Changed>,
    /// Not everything could be looked at, then or now.
    pub not_followed: bool,
}

impl Baseline {
    /// Records a folder's files. Git's part is told by whoever reads it.
    #[must_use]
    pub fn take(root: &Root, since_ms: i64, limits: Limits) -> Self {
        let walked = walk(root, None, limits);
        let mut baseline = Self {
            since_ms,
            not_followed: !walked.is_complete,
            ..Self::default()
        };
        if walked.is_complete {
            baseline.files = walked.files;
            baseline.ignores = walked.ignores;
        }
        baseline
    }

    /// Looks at the folder as it is.
    #[must_use]
    pub fn look(&self, root: &Root, limits: Limits) -> Walked {
        walk(root, Some(&self.ignores), limits)
    }

    /// What changed since.
    #[must_use]
    pub fn changes(&self, root: &Root, limits: Limits) -> Changes {
        if self.not_followed {
            return Changes {
                files: Vec::new(),
                not_followed: true,
            };
        }
        let now = self.look(root, limits);
        let mut files = Vec::new();
        for (path, before) in &self.files {
            // What a rule ignores since then is still compared.
            let found = now.files.get(path).copied().or_else(|| stat(root, path));
            files.extend(compared(path, Some(before), found.as_ref()));
        }
        for (path, found) in &now.files {
            if !self.files.contains_key(path) {
                files.extend(compared(path, None, Some(found)));
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Changes {
            files,
            not_followed: !now.is_complete,
        }
    }

    /// What changed at one path; none when nothing did, or it is not followed.
    #[must_use]
    pub fn change(&self, root: &Root, path: &str) -> Option<FileChange> {
        if self.not_followed {
            return None;
        }
        let before = self.files.get(path);
        if before.is_none() && is_ignored(root, &self.ignores, path) {
            return None;
        }
        let found = stat(root, path);
        compared(path, before, found.as_ref()).map(|changed| changed.change)
    }

    /// Takes what is at a path as how it was: the person took a change back.
    pub fn settle(&mut self, root: &Root, path: &str) {
        match stat(root, path) {
            Some(stat) => self.files.insert(path.to_owned(), stat),
            None => self.files.remove(path),
        };
    }
}

fn stat(root: &Root, path: &str) -> Option<Stat> {
    root.stat(path)
        .filter(|stat| matches!(stat.kind(), Kind::File | Kind::Link))
}

fn compared(path: &str, before: Option<&Stat>, now: Option<&Stat>) -> Option<Changed> {
    let change = match (before, now) {
        (None, None) => return None,
        (Some(before), Some(now)) if before == now => return None,
        (None, Some(_)) => FileChange::Added,
        (Some(_), Some(_)) => FileChange::Modified,
        (Some(_), None) => FileChange::Deleted,
    };
    Some(Changed {
        path: path.to_owned(),
        change,
        at: now.map(|now| now.changed),
    })
}
