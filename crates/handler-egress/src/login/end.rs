//! An exchange that goes on to its end when its client leaves, if what it brings must not be lost.

use crate::report::RequestReport;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How long an exchange may go on that nobody waits for.
const ALONE: Duration = Duration::from_secs(120);

/// Does the work, also when nobody waits any more, once a refresh token was given in it; `None` only when it ended
/// without an outcome.
pub(crate) async fn to_the_end<T: Send + 'static>(
    watch: Arc<RequestReport>,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let (send, outcome) = oneshot::channel();
    let task = handler_base::tasks::spawn_named("login exchange", async move {
        // Nobody may be waiting.
        drop(send.send(work.await));
    });
    let _guard = Guard { watch, task };
    outcome.await.ok()
}

/// Ends the work with its client, unless a login is being renewed.
struct Guard {
    watch: Arc<RequestReport>,
    task: JoinHandle<()>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let task = self.task.abort_handle();
        if self.watch.renews().is_empty() || task.is_finished() {
            task.abort();
            return;
        }
        drop(handler_base::tasks::spawn_named(
            "login limit",
            async move {
                tokio::time::sleep(ALONE).await;
                task.abort();
            },
        ));
    }
}
