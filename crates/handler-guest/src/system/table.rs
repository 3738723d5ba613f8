//! Every process of the sandbox.

use crate::guest::Guest;
use crate::procfs::{ProcStat, all, below};
use crate::sys::now_ms;
use handler_types::guest::SystemProcess;
use std::collections::BTreeSet;
use std::io::Read as _;

/// Most processes told.
const MOST: usize = 16 * 1024;
/// Most bytes of arguments told of one process.
const ARGUMENTS: u64 = 4096;

/// The processes of the sandbox, by pid. As PID 1 these are all that are visible; otherwise the guest and what
/// is below it.
pub(crate) fn ours(guest: &Guest) -> Vec<ProcStat> {
    let mut processes = all();
    if !guest.is_init {
        let tree = below(&processes, &[guest.own_pid], &BTreeSet::new());
        processes.retain(|process| process.pid == guest.own_pid || tree.contains(&process.pid));
    }
    processes.sort_unstable_by_key(|process| process.pid);
    processes
}

/// All of them, described.
pub(crate) fn table(guest: &Guest) -> Vec<SystemProcess> {
    let up = uptime_ms();
    let mut processes = ours(guest);
    processes.truncate(MOST);
    processes
        .iter()
        .map(|process| describe(process, up))
        .collect()
}

fn describe(process: &ProcStat, up: Option<u64>) -> SystemProcess {
    SystemProcess {
        pid: process.pid,
        ppid: process.parent,
        pgid: process.group,
        session: process.session,
        tty: terminal(process.tty),
        foreground: (process.tty != 0 && process.foreground > 0).then_some(process.foreground),
        comm: name(process.pid),
        argv: arguments(process.pid),
        memory_bytes: process.resident_pages * rustix::param::page_size() as u64,
        cpu_ms: to_ms(process.ticks),
        started_ms: up.map_or(0, |up| {
            let ago = up.saturating_sub(to_ms(process.started_ticks));
            now_ms().saturating_sub(i64::try_from(ago).unwrap_or(i64::MAX))
        }),
    }
}

/// Clock ticks as milliseconds.
pub(super) fn to_ms(ticks: u64) -> u64 {
    ticks.saturating_mul(1000) / rustix::param::clock_ticks_per_second().max(1)
}

/// Name of a program as the kernel keeps it.
pub(super) fn name(pid: i32) -> String {
    let text = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&text)
        .trim_end_matches('\n')
        .to_owned()
}

fn arguments(pid: i32) -> Vec<String> {
    let mut text = Vec::new();
    if let Ok(file) = std::fs::File::open(format!("/proc/{pid}/cmdline")) {
        let _ = file.take(ARGUMENTS).read_to_end(&mut text);
    }
    let text = text.strip_suffix(&[0]).unwrap_or(&text);
    if text.is_empty() {
        return Vec::new();
    }
    text.split(|byte| *byte == 0)
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect()
}

fn uptime_ms() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    let (seconds, rest) = text.split_ascii_whitespace().next()?.split_once('.')?;
    // The kernel writes hundredths.
    Some(seconds.parse::<u64>().ok()? * 1000 + rest.parse::<u64>().ok()? * 10)
}

/// The path of a terminal by its device number.
fn terminal(device: i32) -> Option<String> {
    let device = device.cast_unsigned();
    let (major, minor) = (
        (device >> 8) & 0xFFF,
        (device & 0xFF) | ((device >> 12) & 0xF_FF00),
    );
    match major {
        136..=143 => Some(format!("/dev/pts/{}", (major - 136) * 256 + minor)),
        4 if minor < 64 => Some(format!("/dev/tty{minor}")),
        4 => Some(format!("/dev/ttyS{}", minor - 64)),
        5 if minor == 1 => Some("/dev/console".to_owned()),
        0 => None,
        _ => Some(format!("{major}:{minor}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_are_named_by_their_numbers() {
        assert_eq!(terminal(0), None);
        assert_eq!(terminal((136 << 8) | 7).as_deref(), Some("/dev/pts/7"));
        assert_eq!(terminal((4 << 8) | 1).as_deref(), Some("/dev/tty1"));
        assert_eq!(
            terminal((136 << 8) | (1 << 20) | 3).as_deref(),
            Some("/dev/pts/259")
        );
    }

    #[test]
    fn this_process_is_described() {
        let own = i32::try_from(std::process::id()).expect("small");
        let stat = crate::procfs::one(own).expect("it is there");
        let told = describe(&stat, uptime_ms());
        assert_eq!(told.argv, std::env::args().collect::<Vec<_>>());
        assert!(!told.comm.is_empty() && told.memory_bytes > 0 && told.pgid > 0);
        assert!((now_ms() - told.started_ms).abs() < 3_600_000, "{told:?}");
    }
}
