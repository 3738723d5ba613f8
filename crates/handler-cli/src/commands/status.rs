//! `handler status`.

use super::Outcome;
use super::observe::bytes;
use crate::context::Context;

/// Prints whether the daemon runs and what it holds.
///
/// # Errors
/// [`crate::Failure`].
pub async fn run(context: &Context) -> Outcome {
    let client = context.client()?;
    let health = client.health().await?;
    let sandboxes = client.sandboxes("", 500).await?.items.len();
    let sessions = client.sessions("", "", 500).await?.items.len();
    let host = client.host_stats().await?;
    if context.out.json {
        context.out.document(&serde_json::json!({
            "status": health.status, "version": health.version, "pid": health.pid,
            "sandboxes": sandboxes, "sessions": sessions, "host": host,
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
    });
    Ok(0)
}
