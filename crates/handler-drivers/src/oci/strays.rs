//! Helpers of Podman (its monitors, its network helpers) that outlive the command that started them become children of
//! the daemon, which takes in what its own children leave. When they end, their exit status must be taken.

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::path::Path;

/// Names of such programs, as the kernel shows them.
const NAMES: &[&str] = &[
    "conmon",
    "slirp4netns",
    "pasta",
    "pasta.avx2",
    "rootlessport",
    "exe",
    "aardvark-dns",
    "runc",
    "crun",
];

/// Takes the exit status of those that have ended. Children that somebody here waits for have other names.
pub(super) fn reap() {
    let parent = rustix::process::getpid().as_raw_nonzero().get();
    let children = format!("/proc/{parent}/task");
    for thread in std::fs::read_dir(Path::new(&children))
        .into_iter()
        .flatten()
        .flatten()
    {
        let Ok(list) = std::fs::read_to_string(thread.path().join("children")) else {
            continue;
        };
        for pid in list
            .split_ascii_whitespace()
            .filter_map(|pid| pid.parse::<i32>().ok())
        {
            if is_ended_helper(pid)
                && let Some(pid) = Pid::from_raw(pid)
            {
                let _ = waitid(
                    WaitId::Pid(pid),
                    WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
                );
            }
        }
    }
}

fn is_ended_helper(pid: i32) -> bool {
    let Ok(stat) = std::fs::read(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let stat = String::from_utf8_lossy(&stat);
    let (Some(open), Some(close)) = (stat.find('('), stat.rfind(')')) else {
        return false;
    };
    let name = stat.get(open + 1..close).unwrap_or_default();
    let state = stat.get(close + 2..).and_then(|rest| rest.chars().next());
    state == Some('Z') && NAMES.contains(&name)
}
