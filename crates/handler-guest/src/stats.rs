//! What the sandbox uses, from `/proc`.

use crate::guest::Guest;
use crate::procfs::{all, below};
use handler_types::guest::GuestStats;
use std::collections::BTreeSet;

/// Sums up all processes of the sandbox. As PID 1 these are all that are visible; otherwise the guest
/// and what is below it. The time of ended processes is in that of who waited for them.
pub(crate) fn collect(guest: &Guest) -> GuestStats {
    let processes = all();
    let tree = below(&processes, &[guest.own_pid], &BTreeSet::new());
    let ours = processes.iter().filter(|process| {
        guest.is_init || process.pid == guest.own_pid || tree.contains(&process.pid)
    });
    let (mut count, mut pages, mut ticks) = (0u32, 0u64, 0u64);
    for process in ours.filter(|process| process.is_alive()) {
        count += 1;
        pages += process.resident_pages;
        ticks += process.ticks;
    }
    GuestStats {
        processes: count,
        memory_bytes: pages * rustix::param::page_size() as u64,
        cpu_ms: ticks.saturating_mul(1000) / rustix::param::clock_ticks_per_second().max(1),
        uptime_ms: u64::try_from(guest.started.elapsed().as_millis()).unwrap_or(u64::MAX),
    }
}
