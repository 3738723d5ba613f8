//! `handler status`.

use super::Outcome;
use super::observe::bytes;
use crate::context::Context;
use handler_types::limits::HostView;

/// Prints whether the daemon runs and what it holds.
///
/// # Errors
/// [`crate::Failure`].
pub async fn run(context: &Context) -> Outcome {
    let client = context.client()?;
    let health = client.health().await?;
    let sessions = client.sessions("", "", 500).await?.items.len();
    let limits = client.host().await?;
    let sandboxes = limits.committed.sandboxes;
    let host = client.host_stats().await?;
    if context.out.json {
        context.out.document(&serde_json::json!({
            "status": health.status, "version": health.version, "pid": health.pid,
            "sandboxes": sandboxes, "sessions": sessions, "host": host, "limits": limits,
        }));
        return Ok(0);
    }
    context.out.show(&health, |out, health| {
        out.line(format!(
            "handler {} is running (process {})",
            health.version, health.pid
        ));
        out.line(format!("at {}", client.endpoint()));
        out.line(format!("{sandboxes} sandboxes, {sessions} sessions"));
        out.line(format!(
            "{} processors at {:.0}%, memory {} of {}, disk {} of {}",
            host.cpus,
            host.cpu_percent,
            bytes(host.memory.used_bytes),
            bytes(host.memory.total_bytes),
            bytes(host.disk.used_bytes),
            bytes(host.disk.total_bytes)
        ));
        let filter = host
            .filter_memory_bytes
            .map_or_else(String::new, |used| format!(", its filter {}", bytes(used)));
        out.line(format!(
            "the daemon uses {}{filter}",
            bytes(host.daemon_memory_bytes)
        ));
        for line in host_lines(&limits) {
            out.line(line);
        }
    });
    Ok(0)
}

/// What the machine hands out, and what of it is taken.
#[must_use]
pub(super) fn host_lines(host: &HostView) -> Vec<String> {
    let of = |limit: Option<u64>| limit.map_or(String::new(), |limit| format!(" of {limit}"));
    let now = &host.committed;
    let mut lines = vec![format!(
        "{}{} running; handed out: {} of {} MiB of memory, {:.2} of {:.2} CPUs",
        now.running,
        of(host.limits.running),
        now.memory_mib,
        host.memory_limit_mib,
        now.cpus,
        host.cpu_limit
    )];
    if host.waiting > 0 {
        lines.push(format!(
            "{} being started, {} wait",
            host.starting, host.waiting
        ));
    }
    if let Some(problem) = &host.limits_problem {
        lines.push(format!("limits.toml does not count: {problem}"));
    }
    lines
}
