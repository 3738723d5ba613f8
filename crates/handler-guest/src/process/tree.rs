//! Signals to whole trees of processes.
//!
//! A command's tree is everything below its supervisor, which as a subreaper keeps whatever detaches
//! itself. Invariant: a tree is frozen until nothing new appears in it before it is killed, so that
//! forking faster than the guest reads `/proc` is no way out.

use crate::guest::Guest;
use crate::procfs::{all, below, quick_below};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Longest time one kill goes on; what then still lives cannot be killed (uninterruptible sleep).
const GIVE_UP: Duration = Duration::from_secs(10);
/// Time between looking whether killed processes are gone.
const LOOK_AGAIN: Duration = Duration::from_millis(4);
/// Looks without anything new after which a tree counts as frozen.
const QUIET_LOOKS: u32 = 3;

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

/// Kills everything below a supervisor. It is done when the supervisor has nothing left and ends; looking
/// at the tree alone could miss what forks and ends while it is looked at.
pub(crate) async fn kill_below(guest: Rc<Guest>, supervisor: i32) {
    let is_done = || !guest.supervisors.borrow().contains(&supervisor);
    let find = || {
        // A supervisor's pid is its own until the guest has taken its end.
        if is_done() {
            return BTreeSet::new();
        }
        quick_below(&[supervisor], &BTreeSet::new())
    };
    kill(find, is_done).await;
}

/// Kills what a dead supervisor left: it came to the guest, below which only supervisors belong.
pub(crate) async fn kill_orphans(guest: Rc<Guest>) {
    let find = || quick_below(&[guest.own_pid], &guest.supervisors.borrow());
    let is_done = || living(&[guest.own_pid], &guest.supervisors.borrow()).is_empty();
    kill(find, is_done).await;
}

/// Kills everything below the guest but the supervisors, which end by themselves.
pub(crate) async fn kill_everything(guest: Rc<Guest>) {
    let find = || {
        let supervisors = guest.supervisors.borrow();
        let mut all = quick_below(&[guest.own_pid], &BTreeSet::new());
        all.retain(|pid| !supervisors.contains(pid));
        all
    };
    let is_done = || living(&[guest.own_pid], &BTreeSet::new()).is_empty();
    kill(find, is_done).await;
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

/// Freezes what `find` finds until that is nothing new, kills it, and again until `is_done`.
async fn kill(find: impl Fn() -> BTreeSet<i32>, is_done: impl Fn() -> bool) {
    let deadline = Instant::now() + GIVE_UP;
    while !is_done() && Instant::now() < deadline {
        let mut frozen = BTreeSet::new();
        let mut quiet = 0;
        while quiet < QUIET_LOOKS && Instant::now() < deadline {
            quiet += 1;
            for pid in find() {
                if frozen.insert(pid) {
                    let _ = send(pid, libc::SIGSTOP);
                    quiet = 0;
                }
            }
        }
        for pid in frozen {
            let _ = send(pid, libc::SIGKILL);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
