//! Connections outward of one client that has many requests at a time. One of HTTP/2 is shared by all;
//! of HTTP/1.1 each request has one to itself, and gives it back.

use crate::upstream::Upstream;
use std::sync::{Mutex, PoisonError};
use tokio::sync::MutexGuard;

/// Most connections outward for one client.
const MOST: usize = 128;

/// The connections.
#[derive(Debug)]
pub(crate) struct Pool {
    kept: Mutex<Vec<Upstream>>,
    /// Held while one is opened.
    opening: tokio::sync::Mutex<()>,
}

impl Pool {
    /// With these to begin with.
    pub(crate) fn new(first: Option<Upstream>) -> Self {
        Self {
            kept: Mutex::new(first.into_iter().collect()),
            opening: tokio::sync::Mutex::default(),
        }
    }

    /// One that is free now, for one request.
    pub(crate) fn take(&self, fits: impl Fn(&Upstream) -> bool) -> Option<Upstream> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|one| !one.is_closed());
        let found = kept.iter().position(|one| fits(one) && one.is_free())?;
        kept[found]
            .share()
            .or_else(|| Some(kept.swap_remove(found)))
    }

    /// The right to open one.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.opening.lock().await
    }

    /// Whether one more may be opened.
    pub(crate) fn has_room(&self) -> bool {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.len() < MOST
    }

    /// Lets others use a new one as well, if it carries many requests.
    pub(crate) fn offer(&self, upstream: &Upstream) {
        let shared = upstream.share();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(shared);
    }

    /// Takes one back. It may still be busy with a response; it is dropped with the client.
    pub(crate) fn give_back(&self, upstream: Upstream) {
        if upstream.is_http2() {
            // It has never left.
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(upstream);
    }
}
