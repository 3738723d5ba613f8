//! Resources around the sandbox: disk, limits, processors, network.

use std::fs::read_to_string;

/// Values at or above this mean "no limit" in control groups of version 1.
const NO_LIMIT: u64 = 1 << 60;

/// Size and use of the file system a path is on, bytes.
pub(super) fn disk(path: &str) -> (u64, u64) {
    let Ok(stat) = rustix::fs::statvfs(path) else {
        return (0, 0);
    };
    let total = stat.f_blocks.saturating_mul(stat.f_frsize);
    (
        total,
        total.saturating_sub(stat.f_bfree.saturating_mul(stat.f_frsize)),
    )
}

/// The limit of the control group that is visible inside, bytes.
pub(super) fn memory_limit() -> Option<u64> {
    [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ]
    .into_iter()
    .find_map(|path| read_to_string(path).ok()?.trim().parse().ok())
    .filter(|limit| *limit < NO_LIMIT)
}

/// Processors that may be used.
pub(super) fn cpus() -> f64 {
    let allowed = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let allowed = f64::from(u32::try_from(allowed).unwrap_or(u32::MAX));
    quota().map_or(allowed, |quota| quota.min(allowed))
}

/// The quota of the control group that is visible inside, in processors.
fn quota() -> Option<f64> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|value| *value > 0.0);
    if let Ok(text) = read_to_string("/sys/fs/cgroup/cpu.max") {
        let (quota, period) = text.trim().split_once(' ')?;
        return Some(number(quota)? / number(period)?);
    }
    let quota = read_to_string("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").ok()?;
    let period = read_to_string("/sys/fs/cgroup/cpu/cpu.cfs_period_us").ok()?;
    Some(number(&quota)? / number(&period)?)
}

/// Load average of the last minute.
pub(super) fn load() -> f64 {
    read_to_string("/proc/loadavg")
        .ok()
        .and_then(|text| text.split_ascii_whitespace().next()?.parse().ok())
        .unwrap_or(0.0)
}

/// Bytes received and sent on all interfaces but loopback; none when there is no other.
pub(super) fn network() -> Option<(u64, u64)> {
    sum(&read_to_string("/proc/self/net/dev").ok()?)
}

fn sum(table: &str) -> Option<(u64, u64)> {
    let mut total = None;
    for line in table.lines() {
        let Some((name, figures)) = line.split_once(':') else {
            continue;
        };
        if name.trim() == "lo" {
            continue;
        }
        let figures: Vec<u64> = figures
            .split_ascii_whitespace()
            .flat_map(str::parse)
            .collect();
        if let (Some(received), Some(sent)) = (figures.first(), figures.get(8)) {
            let (before_in, before_out): (u64, u64) = total.unwrap_or_default();
            total = Some((
                before_in.saturating_add(*received),
                before_out.saturating_add(*sent),
            ));
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_interfaces_are_added_up_without_loopback() {
        let head = "Inter-|   Receive | Transmit\n face |bytes    packets\n";
        let lo = "    lo:  100 1 0 0 0 0 0 0  100 1 0 0 0 0 0 0\n";
        let eth =
            "  eth0: 5 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n  eth1:1 1 0 0 0 0 0 0 2 1 0 0 0 0 0 0\n";
        assert_eq!(sum(&format!("{head}{lo}")), None);
        assert_eq!(sum(&format!("{head}{lo}{eth}")), Some((6, 9)));
    }

    #[test]
    fn the_disk_and_the_processors_are_known() {
        let (total, used) = disk("/");
        assert!(total > 0 && used <= total);
        assert!(cpus() > 0.0);
        assert_eq!(disk("/no/such/path"), (0, 0));
    }
}
