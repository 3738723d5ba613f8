//! What this machine has and uses, from `/proc` and the file system.

use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_types::observe::{HostStats, Used};
use handler_types::sandbox::SandboxState;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Over how long the use of processors is measured.
const CPU_WINDOW: Duration = Duration::from_millis(100);

/// The state's word.
#[must_use]
pub fn word(state: SandboxState) -> &'static str {
    match state {
        SandboxState::Creating => "creating",
        SandboxState::Starting => "starting",
        SandboxState::Running => "running",
        SandboxState::Pausing => "pausing",
        SandboxState::Paused => "paused",
        SandboxState::Resuming => "resuming",
        SandboxState::Stopping => "stopping",
        SandboxState::Stopped => "stopped",
        SandboxState::Failed => "failed",
        SandboxState::Deleting => "deleting",
    }
}

/// The figures now.
///
/// # Errors
/// A machine without `/proc`.
pub async fn stats(app: &App) -> ApiResult<HostStats> {
    let before = cpu_times()?;
    tokio::time::sleep(CPU_WINDOW).await;
    let after = cpu_times()?;
    let memory = memory(&read("/proc/meminfo")?);
    let load = read("/proc/loadavg")?;
    let mut load = load.split_ascii_whitespace().map(number);
    let uptime: f64 = number(read("/proc/uptime")?.split(' ').next().unwrap_or(""));
    let mut sandboxes: BTreeMap<String, u32> = BTreeMap::new();
    for view in app.engine.list() {
        *sandboxes.entry(word(view.state).to_owned()).or_default() += 1;
    }
    let filter = app.observe.egress.pid();
    Ok(HostStats {
        cpus: cpus(),
        cpu_percent: busy_percent(before, after),
        load: std::array::from_fn(|_| load.next().unwrap_or_default()),
        memory,
        disk: disk(&app.settings.layout.state),
        uptime_seconds: Duration::try_from_secs_f64(uptime).map_or(0, |d| d.as_secs()),
        daemon_uptime_seconds: app.observe.began.elapsed().as_secs(),
        daemon_memory_bytes: resident("self").unwrap_or_default(),
        filter_memory_bytes: (filter != 0)
            .then(|| resident(&filter.to_string()))
            .flatten(),
        sandboxes,
    })
}

fn read(path: &str) -> ApiResult<String> {
    std::fs::read_to_string(path).map_err(|error| ApiError::internal(path, &error))
}

fn number(text: &str) -> f64 {
    text.trim().parse().unwrap_or_default()
}

fn cpus() -> u32 {
    std::thread::available_parallelism()
        .ok()
        .and_then(|count| u32::try_from(count.get()).ok())
        .unwrap_or(1)
}

/// Clock ticks spent idle, and all of them.
fn cpu_times() -> ApiResult<(u64, u64)> {
    Ok(ticks(&read("/proc/stat")?))
}

fn ticks(text: &str) -> (u64, u64) {
    let line = text.lines().next().unwrap_or_default();
    let values: Vec<u64> = line
        .split_ascii_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|word| word.parse().ok())
        .collect();
    let idle = values.iter().skip(3).take(2).sum();
    (idle, values.iter().sum())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a tenth of a second has few ticks"
)]
fn busy_percent(before: (u64, u64), after: (u64, u64)) -> f64 {
    let all = after.1.saturating_sub(before.1);
    let idle = after.0.saturating_sub(before.0).min(all);
    if all == 0 {
        return 0.0;
    }
    (all - idle) as f64 * 100.0 / all as f64
}

/// What could be freed at once counts as unused.
fn memory(text: &str) -> Used {
    let of = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or_default().saturating_mul(1024)
    };
    let total = of("MemTotal:");
    Used {
        used_bytes: total.saturating_sub(of("MemAvailable:")),
        total_bytes: total,
    }
}

fn disk(path: &Path) -> Used {
    let Ok(fs) = rustix::fs::statvfs(path) else {
        return Used::default();
    };
    let total = fs.f_blocks.saturating_mul(fs.f_frsize);
    Used {
        used_bytes: total.saturating_sub(fs.f_bfree.saturating_mul(fs.f_frsize)),
        total_bytes: total,
    }
}

fn resident(process: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages.saturating_mul(rustix::param::page_size() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_of_processors_is_what_was_not_idle() {
        let before = ticks("cpu  100 0 100 700 100 0 0 0 5 5\ncpu0 1 1");
        let after = ticks("cpu  130 0 120 740 110 0 0 0 9 9\n");
        assert_eq!(before, (800, 1000));
        assert!((busy_percent(before, after) - 50.0).abs() < 0.01);
        assert!(busy_percent(after, after).abs() < 0.01);
        assert_eq!(ticks("nonsense"), (0, 0));
    }

    #[test]
    fn memory_that_can_be_freed_is_not_used() {
        let used = memory("MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable:  600 kB\n");
        assert_eq!(
            (used.used_bytes, used.total_bytes),
            (400 * 1024, 1000 * 1024)
        );
    }

    #[test]
    fn this_machine_has_figures() {
        assert!(resident("self").expect("statm") > 0);
        assert!(disk(Path::new("/")).total_bytes > 0);
    }
}
