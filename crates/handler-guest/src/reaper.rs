//! Signals to the guest: children that changed, and the wish to end.

use crate::guest::Guest;
use crate::process::tree;
use rustix::process::{WaitOptions, WaitStatus, wait};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::io::unix::AsyncFd;
use tokio::task::spawn_local;

/// Size of `signalfd_siginfo`.
const RECORD: usize = 128;

/// Reads signals for ever.
pub(crate) async fn watch_signals(guest: Rc<Guest>, signals: AsyncFd<OwnedFd>) {
    let mut records = [0u8; RECORD * 8];
    loop {
        // Before the first signal as well: children may have ended while it was not watched.
        reap(&guest);
        let Ok(mut ready) = signals.readable().await else {
            return;
        };
        let result = ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut records)?));
        let Ok(Ok(count)) = result else {
            continue;
        };
        for record in records[..count].chunks_exact(RECORD) {
            if is_wish_to_end(&guest, record) {
                guest.begin_stop();
            }
        }
    }
}

/// Whether a record is a `SIGTERM` to obey. As PID 1 only one from outside the namespace counts (its
/// sender has no pid inside): programs inside that signal everyone must not end the sandbox.
fn is_wish_to_end(guest: &Guest, record: &[u8]) -> bool {
    let number = |at: usize| {
        record
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u32::from_ne_bytes)
    };
    let (signal, sender) = (number(0), number(12));
    signal == libc::SIGTERM.cast_unsigned() && (!guest.is_init || sender == 0)
}

/// Takes every child that ended: supervisors, and orphans as PID 1 gets them.
fn reap(guest: &Rc<Guest>) {
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
        let pid = pid.as_raw_nonzero().get();
        if status.stopped() {
            // A stopped supervisor reports nothing.
            if guest.supervisors.borrow().contains(&pid) {
                let _ = tree::send(pid, libc::SIGCONT);
            }
            continue;
        }
        let was_supervisor = guest.supervisors.borrow_mut().remove(&pid);
        if was_supervisor {
            if status.signaled() {
                spawn_local(tree::kill_orphans(Rc::clone(guest)));
            }
        } else {
            tell_of_orphan(guest, pid, status);
        }
    }
}

fn tell_of_orphan(guest: &Guest, pid: i32, status: WaitStatus) {
    for process in guest.table.borrow().all() {
        process.reaped_as_orphan(pid, status.as_raw());
    }
}
