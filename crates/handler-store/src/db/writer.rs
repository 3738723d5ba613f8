//! The thread that owns the one writing connection.
//!
//! Invariant: jobs run one after another in the order they were sent. A job that panics ends its own
//! transaction and caller only.

use super::error::StoreError;
use rusqlite::Connection;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tokio::sync::{mpsc, oneshot};

/// Jobs that may wait; beyond it senders wait.
const QUEUE: usize = 256;

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

enum Order {
    Run(Job),
    Stop,
}

/// Sends jobs to the thread, which ends when it is told to or the last sender is gone.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    orders: mpsc::Sender<Order>,
}

impl Writer {
    /// Starts the thread. The receiver is answered when it has ended and the connection is closed.
    pub(super) fn start(mut db: Connection) -> std::io::Result<(Self, oneshot::Receiver<()>)> {
        let (orders, mut queue) = mpsc::channel(QUEUE);
        let (ended, end) = oneshot::channel();
        std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || {
                while let Some(Order::Run(job)) = queue.blocking_recv() {
                    if catch_unwind(AssertUnwindSafe(|| job(&mut db))).is_err() {
                        tracing::error!("a database job panicked");
                    }
                }
                drop(queue);
                // Best effort: lets the planner know about what was written.
                db.execute_batch("PRAGMA optimize;").ok();
                drop(db);
                ended.send(()).ok();
            })?;
        Ok((Self { orders }, end))
    }

    /// Ends the thread after the jobs sent before.
    pub(super) async fn stop(&self) {
        self.orders.send(Order::Stop).await.ok();
    }

    /// Runs a job on the thread. It runs even when the caller stops waiting.
    pub(super) async fn run<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |db| {
            reply.send(job(db)).ok();
        });
        self.orders
            .send(Order::Run(job))
            .await
            .map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}
