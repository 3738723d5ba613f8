//! From HEAD to a commit: loose and packed references.

use super::{Head, is_commit};
use crate::open::Root;
use std::ffi::OsStr;

/// Longest file of one reference, bytes.
const MAX_REF: usize = 4096;
/// Most of `packed-refs` that is read, bytes.
const MAX_PACKED: usize = 64 * 1024 * 1024;
/// Most references that lead to each other.
const MAX_STEPS: usize = 5;

pub(super) fn head(root: &Root) -> Head {
    let read = |name: &str| read(root, name);
    let Some(mut text) = read("HEAD") else {
        return Head::None;
    };
    for _ in 0..MAX_STEPS {
        if is_commit(&text) {
            return Head::Commit(text.to_ascii_lowercase());
        }
        let Some(name) = text.strip_prefix("ref:").map(str::trim) else {
            return Head::None;
        };
        if !is_plain(name) {
            return Head::None;
        }
        let Some(next) = read(name).or_else(|| packed(root, name)) else {
            return Head::Unborn;
        };
        text = next;
    }
    Head::None
}

fn read(root: &Root, name: &str) -> Option<String> {
    let path = format!(".git/{name}");
    let bytes = root.read_raw(OsStr::new(&path), MAX_REF)?;
    Some(String::from_utf8(bytes).ok()?.trim().to_owned())
}

fn is_plain(name: &str) -> bool {
    name.starts_with("refs/")
        && !name.contains('\0')
        && name.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

fn packed(root: &Root, name: &str) -> Option<String> {
    let bytes = root.read_raw(OsStr::new(".git/packed-refs"), MAX_PACKED)?;
    let mut lines = bytes.split(|&b| b == b'\n');
    lines.find_map(|line| {
        let (commit, found) = std::str::from_utf8(line).ok()?.split_once(' ')?;
        (found == name && is_commit(commit)).then(|| commit.to_owned())
    })
}
