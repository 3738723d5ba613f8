//! What `/proc` says about processes.

use std::collections::{BTreeMap, BTreeSet};

/// One process, from `/proc/<pid>/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcStat {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    /// `Z` and `X` are dead already.
    pub(crate) state: u8,
    /// Clock ticks: own and of waited-for children, user and system.
    pub(crate) ticks: u64,
    pub(crate) resident_pages: u64,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// Device number of the controlling terminal; 0: none.
    pub(crate) tty: i32,
    /// Foreground group of the terminal; -1: none.
    pub(crate) foreground: i32,
    /// Clock ticks between boot and its start.
    pub(crate) started_ticks: u64,
}

impl ProcStat {
    /// Whether it can still run.
    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// All processes visible now; those that end meanwhile are left out.
pub(crate) fn all() -> Vec<ProcStat> {
    let Ok(folder) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    folder
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(one)
        .collect()
}

/// One process.
pub(crate) fn one(pid: i32) -> Option<ProcStat> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse(pid, &text)
}

/// The name in parentheses may hold anything, so fields are counted from the last `)`.
fn parse(pid: i32, text: &[u8]) -> Option<ProcStat> {
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // `fields[0]` is field 3 of proc(5).
    let number = |field: usize| -> Option<i64> { fields.get(field - 3)?.parse().ok() };
    let ticks = (14..=17)
        .map(|field| u64::try_from(number(field)?.max(0)).ok())
        .sum::<Option<u64>>()?;
    Some(ProcStat {
        pid,
        parent: i32::try_from(number(4)?).ok()?,
        state: *fields.first()?.as_bytes().first()?,
        ticks,
        resident_pages: u64::try_from(number(24)?.max(0)).ok()?,
        group: i32::try_from(number(5)?).ok()?,
        session: i32::try_from(number(6)?).ok()?,
        tty: i32::try_from(number(7)?).ok()?,
        foreground: i32::try_from(number(8)?).ok()?,
        started_ticks: u64::try_from(number(22)?.max(0)).ok()?,
    })
}

/// The pids of everything below `roots`, the roots left out, and nothing at or below `except`.
pub(crate) fn below(all: &[ProcStat], roots: &[i32], except: &BTreeSet<i32>) -> BTreeSet<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for process in all {
        children
            .entry(process.parent)
            .or_default()
            .push(process.pid);
    }
    let mut found = BTreeSet::new();
    let mut open: Vec<i32> = roots.to_vec();
    while let Some(pid) = open.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            // `insert` also ends a circle made by a pid used again while reading.
            if !except.contains(child) && !roots.contains(child) && found.insert(*child) {
                open.push(*child);
            }
        }
    }
    found
}

/// As [`below`], dead ones included, read from the top down where the kernel lists children: much
/// quicker than reading all processes, which matters for what forks and ends all the time.
pub(crate) fn quick_below(roots: &[i32], except: &BTreeSet<i32>) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut open: Vec<i32> = roots.to_vec();
    let mut lists_seen = false;
    while let Some(pid) = open.pop() {
        for text in child_lists(pid) {
            lists_seen = true;
            let children = text.split_ascii_whitespace().flat_map(str::parse::<i32>);
            for child in children {
                if !except.contains(&child) && found.insert(child) {
                    open.push(child);
                }
            }
        }
    }
    if lists_seen {
        found
    } else {
        below(&all(), roots, except)
    }
}

/// The child list of each thread of a process, of those that can be read.
fn child_lists(pid: i32) -> impl Iterator<Item = String> {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_is_read() {
        let line = b"42 (a) S 1 (x)) R 7 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 99 1000 12 18446744073709551615 0";
        let stat = parse(42, line).expect("a good line");
        assert_eq!(stat.parent, 7);
        assert_eq!(stat.state, b'R');
        assert_eq!(stat.ticks, 5 + 6 + 7 + 8);
        assert_eq!(stat.resident_pages, 12);
        assert!(parse(1, b"1 (x) S").is_none());
        assert!(parse(1, b"").is_none());
    }

    #[test]
    fn the_tree_is_walked_and_excepted_branches_are_not() {
        let stat = |pid, parent| ProcStat {
            pid,
            parent,
            state: b'S',
            ticks: 0,
            resident_pages: 0,
            group: pid,
            session: pid,
            tty: 0,
            foreground: -1,
            started_ticks: 0,
        };
        let all = [
            stat(1, 0),
            stat(2, 1),
            stat(3, 2),
            stat(4, 1),
            stat(5, 4),
            stat(6, 5),
        ];
        assert_eq!(below(&all, &[4], &BTreeSet::new()), BTreeSet::from([5, 6]));
        assert_eq!(
            below(&all, &[1], &BTreeSet::from([2])),
            BTreeSet::from([4, 5, 6])
        );
    }

    #[test]
    fn children_are_found_quickly_and_slowly_alike() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .expect("sleep is everywhere");
        let pid = i32::try_from(child.id()).expect("pids are small");
        let own = i32::try_from(std::process::id()).expect("pids are small");
        let none = BTreeSet::new();
        let (quick, slow) = (quick_below(&[own], &none), below(&all(), &[own], &none));
        child.kill().expect("it runs");
        child.wait().expect("it is ours");
        assert!(quick.contains(&pid) && slow.contains(&pid));
    }

    #[test]
    fn this_process_is_found() {
        let own = i32::try_from(std::process::id()).expect("pids are small");
        let stat = all()
            .into_iter()
            .find(|process| process.pid == own)
            .expect("visible in /proc");
        assert!(stat.is_alive());
        assert!(stat.resident_pages > 0);
    }
}
