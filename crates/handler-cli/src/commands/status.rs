//! `handler status`.

use super::Outcome;
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
    context.out.show(&health, |out, health| {
        out.line(format!(
            "handler {} is running (process {})",
            health.version, health.pid
        ));
        out.line(format!("at {}", client.endpoint()));
        out.line(format!("{sandboxes} sandboxes, {sessions} sessions"));
    });
    Ok(0)
}
