//! Who and what belongs to a world: processes, mounts, cgroups and folders that carry its mark.
//!
//! A process is the world's own when its arguments, environment, working folder or mount table mention the
//! mark; a sandbox's processes are found by their mount table, since their arguments and environment are
//! the agent's. What was learnt (owner texts, sandbox ids) is remembered: a cgroup carries only those.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// A process of a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its process id.
    pub pid: i32,
    /// Start time in clock ticks since boot: with the pid, its identity.
    pub start_ticks: u64,
    /// Program and arguments.
    pub argv: Vec<String>,
}

/// Something a world left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leftover {
    /// A process.
    Process(Member),
    /// A mount point on this host.
    Mount(PathBuf),
    /// A cgroup folder.
    Cgroup(PathBuf),
    /// A sandbox's folder.
    Folder(PathBuf),
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(member) => write!(f, "process {}: {}", member.pid, member.argv.join(" ")),
            Self::Mount(path) => write!(f, "mount {}", path.display()),
            Self::Cgroup(path) => write!(f, "cgroup {}", path.display()),
            Self::Folder(path) => write!(f, "folder {}", path.display()),
        }
    }
}

/// Looks for the parts of one world.
#[derive(Debug)]
pub(crate) struct Census {
    mark: String,
    /// Folders that hold one entry for each sandbox.
    per_sandbox: Vec<PathBuf>,
    owners: BTreeSet<String>,
    sandboxes: BTreeSet<String>,
}

impl Census {
    /// For the world with this mark.
    pub(crate) fn new(mark: String, per_sandbox: Vec<PathBuf>) -> Self {
        Self {
            mark,
            per_sandbox,
            owners: BTreeSet::new(),
            sandboxes: BTreeSet::new(),
        }
    }

    /// All processes of the world, the daemon and the filter too; not this one.
    pub(crate) fn members(&mut self) -> Vec<Member> {
        let own = std::process::id();
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let members: Vec<Member> = pids
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .filter(|pid| *pid != own)
            .filter_map(|pid| self.member(pid))
            .collect();
        for arg in members.iter().flat_map(|member| &member.argv) {
            if let Some(owner) = arg.strip_prefix("--owner=").filter(|o| o.len() >= 4) {
                self.owners.insert(owner.to_owned());
            }
        }
        self.learn_sandboxes();
        members
    }

    /// The process, if it is the world's.
    fn member(&self, pid: u32) -> Option<Member> {
        let dir = PathBuf::from(format!("/proc/{pid}"));
        let read = |name: &str| fs::read(dir.join(name)).unwrap_or_default();
        let start_ticks = live_since(&read("stat"))?;
        let cmdline = read("cmdline");
        let argv: Vec<String> = cmdline
            .split(|byte| *byte == 0)
            .filter(|arg| !arg.is_empty())
            .map(|arg| String::from_utf8_lossy(arg).into_owned())
            .collect();
        let is_owned = argv.iter().any(|arg| {
            arg.strip_prefix("--owner=")
                .is_some_and(|owner| self.owners.contains(owner))
        });
        let mentions = |bytes: &[u8]| contains(bytes, self.mark.as_bytes());
        let cwd = fs::read_link(dir.join("cwd")).unwrap_or_default();
        let belongs = is_owned
            || mentions(&cmdline)
            || mentions(cwd.as_os_str().as_encoded_bytes())
            || mentions(&read("environ"))
            || shows(&read("mountinfo"), &self.mark);
        belongs.then_some(Member {
            pid: pid.cast_signed(),
            start_ticks,
            argv,
        })
    }

    fn learn_sandboxes(&mut self) {
        for entry in self.sandbox_folders() {
            if let Some(name) = entry.file_name() {
                self.sandboxes.insert(name.to_string_lossy().into_owned());
            }
        }
    }

    /// The folders of sandboxes that exist.
    pub(crate) fn sandbox_folders(&self) -> Vec<PathBuf> {
        let mut found: Vec<_> = self
            .per_sandbox
            .iter()
            .flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten())
            .map(|entry| entry.path())
            .collect();
        found.sort();
        found
    }

    /// Mount points of this host that mention the mark, the deepest first.
    pub(crate) fn mounts(&self) -> Vec<PathBuf> {
        let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mut found: Vec<PathBuf> = text
            .lines()
            .filter_map(|line| line.split(' ').nth(4))
            .filter(|target| target.contains(&self.mark))
            .map(|target| PathBuf::from(target.replace("\\040", " ")))
            .collect();
        found.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
        found
    }

    /// Cgroup folders named after the world's owner text or its sandboxes, the deepest first.
    pub(crate) fn cgroups(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        self.walk_cgroups(Path::new("/sys/fs/cgroup"), 8, &mut found);
        found.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
        found
    }

    fn walk_cgroups(&self, folder: &Path, depth: u32, found: &mut Vec<PathBuf>) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let path = entry.path();
            if self.is_ours(&entry.file_name().to_string_lossy()) {
                found.push(path.clone());
            }
            if depth > 0 {
                self.walk_cgroups(&path, depth - 1, found);
            }
        }
    }

    fn is_ours(&self, name: &str) -> bool {
        name.contains(&self.mark)
            || self
                .owners
                .iter()
                .chain(&self.sandboxes)
                .any(|known| name.contains(known.as_str()))
    }
}

/// The start time of a process that is no zombie, from `/proc/<pid>/stat`.
pub(crate) fn live_since(stat: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(stat);
    // The name in parentheses may hold anything; the fields after it are plain.
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// Whether a mount table shows one of the world's folders under another path: only a sandbox of the world
/// has that. At their own paths they also stand in the tables of strangers that copied the host's.
fn shows(table: &[u8], mark: &str) -> bool {
    String::from_utf8_lossy(table).lines().any(|line| {
        let mut fields = line.split(' ').skip(3);
        match (fields.next(), fields.next()) {
            (Some(source), Some(target)) => source.contains(mark) && !target.contains(mark),
            _ => false,
        }
    })
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_start_time() {
        let rest: Vec<String> = (4..53).map(|field| field.to_string()).collect();
        let stat = format!("42 (a) b) S {}\n", rest.join(" "));
        assert_eq!(live_since(stat.as_bytes()), Some(22));
        assert_eq!(live_since(stat.replace(") S ", ") Z ").as_bytes()), None);
        assert_eq!(live_since(b"junk"), None);
    }

    #[test]
    fn a_sandbox_is_known_by_its_mounts_and_a_stranger_is_not() {
        let home =
            "36 35 8:1 /tmp/hw-a1/state/sandboxes/sb1/home /home/agent rw - ext4 /dev/sda rw";
        let work = "37 35 8:1 /tmp/hw-a1/work /tmp/hw-a1/work rw - ext4 /dev/sda rw";
        let copied = "38 35 0:9 / /tmp/hw-a1/state/mnt rw - tmpfs tmpfs rw";
        let table = |lines: &[&str]| lines.join("\n").into_bytes();
        assert!(shows(&table(&[work, copied, home]), "hw-a1"));
        assert!(!shows(&table(&[work, copied]), "hw-a1"));
        assert!(!shows(&table(&[home]), "hw-b2"));
        assert!(!shows(b"junk\n\xff", "hw-a1"));
    }

    #[test]
    fn another_world_is_not_counted() {
        let mut census = Census::new("hw-nobody-has-this".to_owned(), Vec::new());
        assert_eq!(census.members(), Vec::new());
        assert_eq!(census.mounts(), Vec::<PathBuf>::new());
        assert_eq!(census.cgroups(), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_cgroup_is_ours_by_mark_owner_or_sandbox() {
        let mut census = Census::new("hw-mark".to_owned(), Vec::new());
        assert!(!census.is_ours("handler-sb0123"));
        census.sandboxes.insert("sb0123".to_owned());
        census.owners.insert("own7".to_owned());
        assert!(census.is_ours("handler-sb0123") && census.is_ours("handler-own7"));
        assert!(!census.is_ours("handler-sb99"));
    }
}
