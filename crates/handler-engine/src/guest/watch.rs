//! Changes of files as a sandbox sees them.
//!
//! Invariant: at most [`MOST_EVENTS`] events wait here; what goes beyond is told as one overflow. A watch lives
//! on over a lost link: it is made anew, and an overflow says that changes may have been missed.

use super::connection::Connection;
use super::error::GuestCallError;
use super::handle::GuestHandle;
use super::outbox::lock;
use super::pending::Waiting;
use handler_types::guest::{Op, Reply, WatchEvent, WatchKind};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Most events waiting for one reader.
const MOST_EVENTS: usize = 8192;
/// Longest path taken, in bytes; longer ones a guest cannot have.
const LONGEST_PATH: usize = 32 * 1024;

#[derive(Debug, Default)]
struct State {
    events: VecDeque<WatchEvent>,
    is_over: bool,
    is_lost: bool,
}

/// The place where one watch's events wait.
#[derive(Debug, Default)]
pub(super) struct WatchSlot {
    state: Mutex<State>,
    changed: Notify,
}

/// What to do next.
enum Next {
    Event(WatchEvent),
    Over,
    Lost,
}

impl WatchSlot {
    /// Takes events from the guest.
    pub(super) fn accept(&self, events: Vec<WatchEvent>) {
        let mut state = lock(&self.state);
        for mut event in events {
            if event.path.len() > LONGEST_PATH {
                continue;
            }
            event.to = event.to.filter(|to| to.len() <= LONGEST_PATH);
            if state.events.len() < MOST_EVENTS {
                state.events.push_back(event);
                continue;
            }
            if let Some(last) = state.events.back_mut() {
                last.kind = WatchKind::Overflow;
                last.to = None;
            }
            break;
        }
        drop(state);
        self.changed.notify_one();
    }

    /// The path is gone.
    pub(super) fn end(&self) {
        lock(&self.state).is_over = true;
        self.changed.notify_one();
    }

    /// The connection is gone.
    pub(super) fn lose(&self) {
        lock(&self.state).is_lost = true;
        self.changed.notify_one();
    }

    fn take(&self) -> Option<Next> {
        let mut state = lock(&self.state);
        if let Some(event) = state.events.pop_front() {
            return Some(Next::Event(event));
        }
        if state.is_over {
            return Some(Next::Over);
        }
        state.is_lost.then_some(Next::Lost)
    }
}

/// A watch. Dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    handle: GuestHandle,
    path: String,
    recursive: bool,
    connection: Arc<Connection>,
    request: u32,
    slot: Arc<WatchSlot>,
}

impl Watch {
    /// The next change; `None` when the path is gone or the sandbox is. Cancel safe.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        loop {
            let slot = self.slot.clone();
            let changed = slot.changed.notified();
            match slot.take() {
                Some(Next::Event(event)) => return Some(event),
                Some(Next::Over) => return None,
                Some(Next::Lost) => {
                    let again = self.handle.watch(&self.path, self.recursive).await;
                    *self = again.ok()?;
                    return Some(WatchEvent {
                        path: self.path.clone(),
                        kind: WatchKind::Overflow,
                        to: None,
                    });
                }
                None => changed.await,
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.connection.cancel_file(self.request);
    }
}

impl GuestHandle {
    /// Tells what changes at a path from now on; with `recursive` in all folders below as well.
    ///
    /// # Errors
    /// [`GuestCallError`]: no such path, too many watches.
    pub async fn watch(&self, path: &str, recursive: bool) -> Result<Watch, GuestCallError> {
        let limit = self.timing().slow_call;
        let deadline = Instant::now() + limit;
        loop {
            let connection = self.up(deadline, limit).await?;
            let slot = Arc::new(WatchSlot::default());
            let op = Op::Watch {
                path: path.to_owned(),
                recursive,
            };
            let waiting = Waiting::Watch(slot.clone());
            let (request, answer) = connection
                .send_request(op, waiting, deadline, limit)
                .await?;
            // Made first, so that giving up ends it.
            let watch = Watch {
                handle: self.clone(),
                path: path.to_owned(),
                recursive,
                connection: connection.clone(),
                request,
                slot,
            };
            match connection.wait(answer, deadline, limit).await {
                Ok(Reply::Done) => return Ok(watch),
                Ok(_) => return Err(connection.unexpected()),
                Err(GuestCallError::Lost(reason)) if !reason.is_breach() => {}
                Err(error) => return Err(error),
            }
        }
    }
}
