//! The door through which tasks start: each has a name, and its panic is logged, not lost.

use std::future::Future;
use tokio::task::JoinHandle;
use tracing::Instrument as _;

/// Starts a named task. A panic in it is logged with its name and ends only it.
pub fn spawn_named<F>(name: &'static str, future: F) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let inner = tokio::spawn(future.instrument(tracing::info_span!("task", name)));
    let abort = inner.abort_handle();
    tokio::spawn(async move {
        // Aborting the handle returned must end the work too.
        let _guard = AbortOnDrop(abort);
        if let Err(error) = inner.await
            && error.is_panic()
        {
            tracing::error!(task = name, "task panicked");
        }
    })
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
