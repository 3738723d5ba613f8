//! Waiting for a condition with a deadline, never for a time.

use anyhow::bail;
use std::future::Future;
use std::time::{Duration, Instant};

/// How long one look is apart from the next.
const STEP: Duration = Duration::from_millis(10);

/// Looks until `look` answers something, and returns it.
///
/// # Errors
/// When `within` is over, naming `what` was waited for.
pub async fn eventually<T, F, Fut>(what: &str, within: Duration, mut look: F) -> anyhow::Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let end = Instant::now() + within;
    loop {
        if let Some(found) = look().await {
            return Ok(found);
        }
        if Instant::now() >= end {
            bail!("{what}: not within {within:?}");
        }
        tokio::time::sleep(STEP).await;
    }
}
