//! What there is on this host: our processes, read from `/proc`.
//!
//! A process counts as ours when its arguments say so *and* it is one that a sandbox cannot forge:
//! of our own pid namespace (a launcher) or the PID 1 of one below.

use super::process::ProcessId;
use std::path::Path;

/// One of our processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnedProcess {
    /// Which process.
    pub(super) process: ProcessId,
    /// The sandbox it belongs to.
    pub(super) sandbox: String,
    /// Whether it is PID 1 of a sandbox (else a launcher at work).
    pub(super) is_init: bool,
}

/// All launchers and PID 1s of this owner.
pub(super) fn owned(owner: &str) -> Vec<OwnedProcess> {
    let uid = rustix::process::geteuid().as_raw();
    pids()
        .filter_map(|pid| owned_process(pid, owner, uid))
        .collect()
}

/// Start time of a process in clock ticks since boot.
pub(crate) fn start_ticks(pid: i32) -> Option<u64> {
    parse_stat(&read(pid, "stat")?).map(|stat| stat.start_ticks)
}

/// Ended children of `parent` that were PID 1 of a sandbox and whose status nobody took.
pub(super) fn ended_inits(parent: i32) -> Vec<i32> {
    pids()
        .filter(|pid| {
            read(*pid, "stat")
                .and_then(|stat| parse_stat(&stat))
                .is_some_and(|stat| stat.state == 'Z' && stat.parent == parent)
        })
        .filter(|pid| {
            let status = read(*pid, "status").and_then(|status| parse_status(&status));
            status.is_some_and(|status| status.is_init)
        })
        .collect()
}

fn owned_process(pid: i32, owner: &str, uid: u32) -> Option<OwnedProcess> {
    let sandbox = parse_cmdline(&std::fs::read(format!("/proc/{pid}/cmdline")).ok()?, owner)?;
    let status = parse_status(&read(pid, "status")?)?;
    let is_ours = status.uid == uid && (status.depth == 1 || status.is_init);
    let process = ProcessId {
        pid,
        start_ticks: start_ticks(pid)?,
    };
    is_ours.then_some(OwnedProcess {
        process,
        sandbox,
        is_init: status.is_init,
    })
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir(Path::new("/proc"))
        .into_iter()
        .flatten()
        .flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn read(pid: i32, name: &str) -> Option<String> {
    // Names of processes need not be UTF-8.
    let bytes = std::fs::read(format!("/proc/{pid}/{name}")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The sandbox named by the arguments of a launcher or PID 1 of this owner.
fn parse_cmdline(cmdline: &[u8], owner: &str) -> Option<String> {
    let mut arguments = cmdline.split(|byte| *byte == 0);
    let (_program, verb) = (arguments.next()?, arguments.next()?);
    let is_ours = matches!(verb, b"launch" | b"init")
        && arguments.next()? == format!("--owner={owner}").as_bytes();
    let id = std::str::from_utf8(arguments.next()?).ok()?;
    (is_ours && !id.is_empty()).then(|| id.to_owned())
}

struct Stat {
    state: char,
    parent: i32,
    start_ticks: u64,
}

/// The name (field 2) may hold spaces and brackets, so fields are counted from its last bracket.
fn parse_stat(stat: &str) -> Option<Stat> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        start_ticks: fields.get(19)?.parse().ok()?,
    })
}

struct Status {
    uid: u32,
    /// Pid namespaces it is visible in, from ours down.
    depth: usize,
    is_init: bool,
}

fn parse_status(status: &str) -> Option<Status> {
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::split_ascii_whitespace)
    };
    let pids: Vec<&str> = field("NSpid:")?.collect();
    Some(Status {
        uid: field("Uid:")?.next()?.parse().ok()?,
        depth: pids.len(),
        is_init: pids.len() == 2 && pids.last() == Some(&"1"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owners_launchers_and_inits_are_recognised() {
        let line = b"handler-guest\0launch\0--owner=o1\0sb0102030405060708\0";
        assert_eq!(
            parse_cmdline(line, "o1").as_deref(),
            Some("sb0102030405060708")
        );
        assert_eq!(parse_cmdline(line, "o"), None);
        assert_eq!(
            parse_cmdline(b"sh\0launch\0--owner=o1\0", "o1"),
            None::<String>
        );
        assert_eq!(parse_cmdline(b"", "o1"), None);
        assert_eq!(
            parse_cmdline(b"handler-guest\0probe\0--owner=o1\0sb\0", "o1"),
            None
        );
    }

    #[test]
    fn a_process_inside_a_sandbox_that_names_itself_like_ours_is_not_ours() {
        let inside = "Uid:\t0\t0\t0\t0\nNSpid:\t77\t5\n";
        let init = "Uid:\t0\t0\t0\t0\nNSpid:\t77\t1\n";
        let launcher = "Uid:\t7\t7\t7\t7\nNSpid:\t77\n";
        let parsed = |text| parse_status(text).expect("parses");
        assert!(!parsed(inside).is_init && parsed(inside).depth == 2);
        assert!(parsed(init).is_init);
        assert!(!parsed(launcher).is_init && parsed(launcher).depth == 1);
        assert_eq!(parsed(launcher).uid, 7);
    }

    #[test]
    fn stat_is_read_past_a_name_with_brackets() {
        let stat =
            parse_stat("7 (a) b) Z 3 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 98765 1").expect("ok");
        assert_eq!((stat.state, stat.parent, stat.start_ticks), ('Z', 3, 98765));
        assert!(parse_stat("nonsense").is_none());
    }
}
