//! Signals to whole trees of processes.
//!
//! A command's tree is everything below its supervisor, which as a subreaper keeps whatever detaches
//! itself. Invariant: a tree is frozen until nothing new appears in it before it is killed, so that
//! forking faster than the guest reads `/proc` is no way out.

use crate::guest::Guest;
use crate::procfs::{all, below};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Longest time one kill goes on; what then still lives cannot be killed (uninterruptible sleep).
const GIVE_UP: Duration = Duration::from_secs(10);
/// Time between looking whether killed processes are gone.
const LOOK_AGAIN: Duration = Duration::from_millis(4);

/// Sends a signal to one process.
pub(crate) fn send(pid: i32, signal: i32) -> rustix::io::Result<()> {
    let invalid = rustix::io::Errno::INVAL;
    // 1 and below would mean the guest or groups.
    let pid = Pid::from_raw(pid).filter(|_| pid > 1).ok_or(invalid)?;
    kill_process(pid, Signal::from_named_raw(signal).ok_or(invalid)?)
}

/// Sends a signal to everything below a supervisor.
pub(crate) fn signal_below(guest: &Guest, supervisor: i32, signal: i32) {
    if guest.supervisors.borrow().contains(&supervisor) {
        for pid in living(&[supervisor], &BTreeSet::new()) {
            let _ = send(pid, signal);
        }
    }
}

/// Kills everything below a supervisor.
pub(crate) async fn kill_below(guest: Rc<Guest>, supervisor: i32) {
    let find = || {
        if guest.supervisors.borrow().contains(&supervisor) {
            living(&[supervisor], &BTreeSet::new())
        } else {
            BTreeSet::new()
        }
    };
    kill(find).await;
}

/// Kills what a dead supervisor left: it came to the guest, below which only supervisors belong.
pub(crate) async fn kill_orphans(guest: Rc<Guest>) {
    let find = || living(&[guest.own_pid], &guest.supervisors.borrow());
    kill(find).await;
}

/// Kills everything below the guest but the supervisors, which end by themselves.
pub(crate) async fn kill_everything(guest: Rc<Guest>) {
    let find = || {
        let supervisors = guest.supervisors.borrow();
        let mut all = living(&[guest.own_pid], &BTreeSet::new());
        all.retain(|pid| !supervisors.contains(pid));
        all
    };
    kill(find).await;
}

/// What can still run below `roots`.
pub(crate) fn living(roots: &[i32], except: &BTreeSet<i32>) -> BTreeSet<i32> {
    let processes = all();
    let mut found = below(&processes, roots, except);
    let alive: BTreeSet<i32> = processes
        .iter()
        .filter(|process| process.is_alive())
        .map(|process| process.pid)
        .collect();
    found.retain(|pid| alive.contains(pid));
    found
}

async fn kill(find: impl Fn() -> BTreeSet<i32>) {
    let deadline = Instant::now() + GIVE_UP;
    while Instant::now() < deadline {
        let mut frozen = BTreeSet::new();
        loop {
            let new: Vec<i32> = find().difference(&frozen).copied().collect();
            if new.is_empty() || Instant::now() >= deadline {
                break;
            }
            for pid in new {
                let _ = send(pid, libc::SIGSTOP);
                frozen.insert(pid);
            }
            tokio::task::yield_now().await;
        }
        if frozen.is_empty() {
            return;
        }
        for pid in frozen {
            let _ = send(pid, libc::SIGKILL);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
