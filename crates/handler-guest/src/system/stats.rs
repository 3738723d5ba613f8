//! What the sandbox uses.

use super::{resources, table};
use crate::guest::Guest;
use handler_types::guest::GuestStats;

/// Sums up all processes of the sandbox. The time of ended processes is in that of who waited for them.
pub(crate) fn collect(guest: &Guest) -> GuestStats {
    let (mut count, mut pages, mut ticks) = (0u32, 0u64, 0u64);
    for process in table::ours(guest)
        .iter()
        .filter(|process| process.is_alive())
    {
        count += 1;
        pages += process.resident_pages;
        ticks += process.ticks;
    }
    let (disk_total_bytes, disk_used_bytes) = resources::disk(&guest.config.home);
    let network = resources::network();
    GuestStats {
        processes: count,
        memory_bytes: pages * rustix::param::page_size() as u64,
        cpu_ms: table::to_ms(ticks),
        uptime_ms: u64::try_from(guest.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        disk_total_bytes,
        disk_used_bytes,
        memory_limit_bytes: resources::memory_limit(),
        cpus: resources::cpus(),
        load: resources::load(),
        network_received_bytes: network.map(|(received, _)| received),
        network_sent_bytes: network.map(|(_, sent)| sent),
    }
}
