//! All files of a folder that are followed: bounded in number and time.

use crate::ignore::Level;
use crate::open::{Kind, Root, Stat, names, stat_in, text};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Most of a `.gitignore` file that is read, bytes.
const MAX_IGNORE: usize = 1024 * 1024;
/// Most bytes of such files that are kept of one folder.
const MAX_IGNORES: usize = 8 * 1024 * 1024;

/// How far a walk goes.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most files and links found.
    pub files: usize,
    /// Most names looked at, with folders and what is ignored.
    pub names: usize,
    /// Longest it takes.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            files: 50_000,
            names: 500_000,
            time: Duration::from_secs(20),
        }
    }
}

/// What was found.
#[derive(Debug, Default)]
pub struct Walked {
    /// Files and links by their path.
    pub files: BTreeMap<String, Stat>,
    /// The `.gitignore` files that counted, by their folder's path; `.git/info/exclude` as `.git`.
    pub ignores: BTreeMap<String, String>,
    /// Everything was looked at.
    pub is_complete: bool,
}

/// Walks through a folder. Not followed: what its `.gitignore` files or those of before (`known`) ignore, `.git`
/// folders, and what is neither file, link nor folder.
#[must_use]
pub fn walk(root: &Root, known: Option<&BTreeMap<String, String>>, limits: Limits) -> Walked {
    let mut walk = Walk {
        root,
        known,
        limits,
        until: Instant::now() + limits.time,
        seen: 0,
        kept: 0,
        walked: Walked::default(),
    };
    walk.walked.is_complete = walk.run().is_some();
    walk.walked
}

/// Whether rules, as they are or as they were, ignore one path or a folder above it.
pub(crate) fn is_ignored(root: &Root, known: &BTreeMap<String, String>, path: &str) -> bool {
    let mut walk = Walk {
        root,
        known: Some(known),
        limits: Limits::default(),
        until: Instant::now(),
        seen: 0,
        kept: 0,
        walked: Walked::default(),
    };
    let nothing = Level::new("", 0, None);
    let (mut now, mut then) = walk.rules(".git", b".git/info/exclude", 0, &nothing, &nothing);
    let parts: Vec<&str> = path.split('/').collect();
    for depth in 0..parts.len() {
        let folder = parts[..depth].join("/");
        let file = join(folder.as_bytes(), OsStr::new(".gitignore"));
        (now, then) = walk.rules(&folder, &file, depth, &now, &then);
        let is_folder = depth + 1 < parts.len();
        let part = &parts[..=depth];
        if now.ignores(part, is_folder) || then.ignores(part, is_folder) {
            return true;
        }
    }
    false
}

struct Walk<'a> {
    root: &'a Root,
    known: Option<&'a BTreeMap<String, String>>,
    limits: Limits,
    until: Instant,
    seen: usize,
    kept: usize,
    walked: Walked,
}

/// A folder still to be looked into: rules as they are, and as they were.
struct Pending {
    path: Vec<u8>,
    now: Rc<Level>,
    then: Rc<Level>,
}

impl Walk<'_> {
    /// None when a limit was reached.
    fn run(&mut self) -> Option<()> {
        let nothing = Level::new("", 0, None);
        let (now, then) = self.rules(".git", b".git/info/exclude", 0, &nothing, &nothing);
        let mut pending = vec![Pending {
            path: Vec::new(),
            now,
            then,
        }];
        while let Some(next) = pending.pop() {
            self.folder(&next, &mut pending)?;
        }
        Some(())
    }

    fn folder(&mut self, at: &Pending, pending: &mut Vec<Pending>) -> Option<()> {
        // One that vanished, may not be read or became a link is passed over.
        let Ok(folder) = self.root.folder(OsStr::from_bytes(&at.path)) else {
            return Some(());
        };
        let Ok(names) = names(folder.as_fd()) else {
            return Some(());
        };
        let own = String::from_utf8_lossy(&at.path).into_owned();
        let depth = match own.is_empty() {
            true => 0,
            false => own.split('/').count(),
        };
        let file = join(&at.path, OsStr::new(".gitignore"));
        let (now, then) = self.rules(&own, &file, depth, &at.now, &at.then);
        for name in names {
            self.count()?;
            let Some(stat) = stat_in(folder.as_fd(), &name) else {
                continue;
            };
            let is_folder = stat.kind() == Kind::Folder;
            if stat.kind() == Kind::Other {
                continue;
            }
            let path = join(&at.path, &name);
            let shown = text(&OsString::from_vec(path.clone()));
            let parts: Vec<&str> = shown.split('/').collect();
            let is_ignored = now.ignores(&parts, is_folder)
                || (!Rc::ptr_eq(&now, &then) && then.ignores(&parts, is_folder));
            if is_ignored {
                continue;
            }
            if is_folder {
                pending.push(Pending {
                    path,
                    now: now.clone(),
                    then: then.clone(),
                });
                continue;
            }
            if self.walked.files.len() >= self.limits.files {
                return None;
            }
            self.walked.files.insert(shown, stat);
        }
        Some(())
    }

    fn count(&mut self) -> Option<()> {
        self.seen += 1;
        let is_late = self.seen.is_multiple_of(64) && Instant::now() > self.until;
        (self.seen <= self.limits.names && !is_late).then_some(())
    }

    /// The rules in a folder: those its file has, and those it had.
    fn rules(
        &mut self,
        key: &str,
        file: &[u8],
        depth: usize,
        now: &Rc<Level>,
        then: &Rc<Level>,
    ) -> (Rc<Level>, Rc<Level>) {
        let text = self
            .root
            .read_raw(OsStr::from_bytes(file), MAX_IGNORE)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default();
        let before = match self.known {
            Some(known) => known.get(key).map_or("", String::as_str),
            None => &text,
        };
        let level = |text: &str, above: &Rc<Level>| match text.is_empty() {
            true => above.clone(),
            false => Level::new(text, depth, Some(above.clone())),
        };
        let next = level(&text, now);
        let was = match Rc::ptr_eq(now, then) && text == before {
            true => next.clone(),
            false => level(before, then),
        };
        if !text.is_empty() && self.kept + text.len() <= MAX_IGNORES {
            self.kept += text.len();
            self.walked.ignores.insert(key.to_owned(), text);
        }
        (next, was)
    }
}

fn join(folder: &[u8], name: &OsStr) -> Vec<u8> {
    let mut path = folder.to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name.as_bytes());
    path
}
