//! Processor time that a process has used: on a busy machine it says more than how long something took.

use anyhow::Context as _;

/// Milliseconds of processor time since the process began, in steps of a clock tick (usually 10 ms).
pub(crate) fn used_ms(pid: u32) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("process {pid}"))?;
    let ticks = ticks(&text).context("no processor time")?;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    Ok(ticks as f64 * 1e3 / rustix::param::clock_ticks_per_second() as f64)
}

/// User and system time together.
fn ticks(stat: &str) -> Option<u64> {
    // The name in parentheses may hold anything; the fields after it are plain.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_added() {
        let text = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 30 12 99 98";
        assert_eq!(ticks(text), Some(42));
        assert_eq!(ticks("junk"), None);
        assert!(used_ms(std::process::id()).is_ok());
    }
}
