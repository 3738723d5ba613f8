//! Processes of a build, found by what they cannot hide: the private folder in their environment, and whose
//! children they are. For ending a build that does not end when asked, or whose daemon died.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// How long a build that was told to end may take.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// Ends every build with its private folder below `folder`: asked first, so that the running step ends with
/// it, then made to. Returns when none is left.
pub(super) async fn end_all(folder: &Path) {
    let marked = marked(folder);
    if marked.is_empty() {
        return;
    }
    let mut all = with_descendants(&marked);
    for pid in &marked {
        signal(*pid, Signal::INT);
    }
    let deadline = tokio::time::Instant::now() + GRACE;
    while tokio::time::Instant::now() < deadline {
        all.retain(|pid| is_alive(*pid));
        if all.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tracing::warn!(
        processes = all.len(),
        "a build did not end when asked; it is killed"
    );
    let mut rest = with_descendants(&all);
    for pid in &rest {
        signal(*pid, Signal::KILL);
    }
    // What is killed is gone in a moment, unless it waits for a disk.
    for _ in 0..100 {
        rest.retain(|pid| is_alive(*pid));
        if rest.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Kills what still runs in a working container: when its builder died, it belongs to nobody. Its first process
/// has the beginning of the container's id as host name in the environment it was started with; the others of
/// its namespace die with it.
pub(super) fn kill_inside(container: &str) {
    let Some(name) = container.get(..12) else {
        return;
    };
    let mark = format!("HOSTNAME={name}");
    for pid in with_environment(|entry| entry == mark.as_bytes()) {
        tracing::info!(
            process = pid,
            container,
            "a step of an interrupted build is killed"
        );
        signal(pid, Signal::KILL);
    }
}

fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        kill_process(pid, signal).ok();
    }
}

/// A zombie is no longer alive: its parent's affair.
fn is_alive(pid: i32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != 'Z')
}

/// State and parent of a process.
fn stat(pid: i32) -> Option<(char, i32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, parentheses too.
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Processes whose temporary folder is a build's.
fn marked(folder: &Path) -> Vec<i32> {
    let mark = format!("TMPDIR={}/", folder.display());
    with_environment(|entry| entry.starts_with(mark.as_bytes()))
}

/// Processes that were started with such a variable.
fn with_environment(is_it: impl Fn(&[u8]) -> bool) -> Vec<i32> {
    pids()
        .filter(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(&is_it)
        })
        .collect()
}

/// These and all below them.
fn with_descendants(roots: &[i32]) -> Vec<i32> {
    let parents: BTreeMap<i32, i32> = pids().filter_map(|pid| Some((pid, stat(pid)?.1))).collect();
    let is_below = |pid: &i32| {
        let mut at = *pid;
        // As deep as processes can be nested in any sane tree; a loop cannot be.
        for _ in 0..1000 {
            if roots.contains(&at) {
                return true;
            }
            match parents.get(&at) {
                Some(parent) if *parent > 1 => at = *parent,
                _ => return false,
            }
        }
        false
    };
    parents.keys().copied().filter(is_below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[tokio::test]
    async fn a_build_is_found_by_its_folder_and_ends_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("b1/.build-x/tmp");
        let mut child = Command::new("sh")
            .args(["-c", "sleep 4321 & wait"])
            .env("TMPDIR", &own)
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let found = || marked(dir.path()).contains(&pid) && with_descendants(&[pid]).len() == 2;
        for _ in 0..500 {
            if found() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(found());
        assert!(marked(&dir.path().join("b2")).is_empty());
        end_all(dir.path()).await;
        assert!(!child.wait().unwrap().success());
        assert!(marked(dir.path()).is_empty());
    }
}
