//! One viewer's queue. Putting a message in never waits, so a slow viewer holds up nobody; replayed
//! messages take a lane of their own that waits for the viewer, since they come from disk.
//!
//! Invariant: when a message lies in the live lane, every replayed message that comes before it already
//! lies in the replay lane, which is emptied first.

use crate::live::ViewerId;
use crate::owner::Command;
use bytes::Bytes;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Messages a viewer may be behind.
pub(crate) const QUEUE: usize = 10_000;
/// Bytes a viewer may be behind, unless it is one message.
pub(crate) const QUEUE_BYTES: usize = 64 * 1024 * 1024;
/// Replayed messages that wait for the viewer.
const REPLAY_QUEUE: usize = 256;

/// What a viewer gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewerEvent {
    /// One JSON-RPC message, valid UTF-8, for one text frame.
    Frame(Bytes),
    /// The connection is to be closed; nothing follows.
    Close {
        /// WebSocket close code.
        code: u16,
        /// Why.
        reason: String,
    },
}

/// The viewer is detached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the viewer is detached")]
pub struct ViewerGone;

#[derive(Debug, Default)]
struct Shared {
    close: Mutex<Option<(u16, String)>>,
    abort: CancellationToken,
    gone: CancellationToken,
    bytes: AtomicUsize,
}

/// The session's end of a viewer.
#[derive(Debug)]
pub(crate) struct ViewerQueue {
    live: mpsc::Sender<Bytes>,
    replay: mpsc::Sender<Bytes>,
    shared: Arc<Shared>,
}

/// The viewer's messages to the session. Dropping it detaches the viewer.
#[derive(Debug)]
pub struct ViewerSender {
    viewer: ViewerId,
    commands: mpsc::Sender<Command>,
    shared: Arc<Shared>,
}

/// The session's messages to the viewer. Dropping it detaches the viewer.
#[derive(Debug)]
pub struct ViewerReceiver {
    live: mpsc::Receiver<Bytes>,
    replay: mpsc::Receiver<Bytes>,
    shared: Arc<Shared>,
    is_replay_over: bool,
}

/// Makes the three ends.
pub(crate) fn viewer(
    viewer: ViewerId,
    commands: mpsc::Sender<Command>,
) -> (ViewerQueue, ViewerSender, ViewerReceiver) {
    let (live_in, live) = mpsc::channel(QUEUE);
    let (replay_in, replay) = mpsc::channel(REPLAY_QUEUE);
    let shared = Arc::new(Shared::default());
    (
        ViewerQueue {
            live: live_in,
            replay: replay_in,
            shared: Arc::clone(&shared),
        },
        ViewerSender {
            viewer,
            commands,
            shared: Arc::clone(&shared),
        },
        ViewerReceiver {
            live,
            replay,
            shared,
            is_replay_over: false,
        },
    )
}

impl ViewerQueue {
    /// Puts a live message in; false when the viewer is too far behind.
    #[must_use]
    pub(crate) fn push(&self, frame: Bytes) -> bool {
        let size = frame.len();
        let behind = self.shared.bytes.fetch_add(size, Ordering::Relaxed);
        if behind > 0 && behind + size > QUEUE_BYTES {
            return false;
        }
        !matches!(
            self.live.try_send(frame),
            Err(mpsc::error::TrySendError::Full(_))
        )
    }

    /// The lane for replayed messages.
    #[must_use]
    pub(crate) fn replay_lane(&self) -> mpsc::Sender<Bytes> {
        self.replay.clone()
    }

    /// Fires when the viewer is detached.
    #[must_use]
    pub(crate) fn gone(&self) -> CancellationToken {
        self.shared.gone.clone()
    }

    /// Closes the viewer; with `is_now` what is still in its queue is thrown away.
    pub(crate) fn close(self, code: u16, reason: &str, is_now: bool) {
        let mut close = self
            .shared
            .close
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        close.get_or_insert_with(|| (code, reason.to_owned()));
        drop(close);
        if is_now {
            self.shared.abort.cancel();
        }
    }
}

impl ViewerSender {
    /// Gives the session one message (the content of one text frame). Waits while the session is busy
    /// with earlier ones.
    ///
    /// # Errors
    /// [`ViewerGone`] when the session ended.
    pub async fn send(&self, frame: Bytes) -> Result<(), ViewerGone> {
        let command = Command::Frame {
            viewer: self.viewer,
            frame,
        };
        self.commands.send(command).await.map_err(|_| ViewerGone)
    }
}

impl Drop for ViewerSender {
    fn drop(&mut self) {
        self.shared.gone.cancel();
    }
}

impl Drop for ViewerReceiver {
    fn drop(&mut self) {
        self.shared.gone.cancel();
    }
}

impl ViewerReceiver {
    /// The next message or the close; after a close only the close again. Cancel safe.
    pub async fn next(&mut self) -> ViewerEvent {
        loop {
            tokio::select! {
                biased;
                () = self.shared.abort.cancelled() => return self.closed(),
                frame = self.replay.recv(), if !self.is_replay_over => match frame {
                    Some(frame) => return ViewerEvent::Frame(frame),
                    None => self.is_replay_over = true,
                },
                frame = self.live.recv() => match frame {
                    Some(frame) => {
                        self.shared.bytes.fetch_sub(frame.len(), Ordering::Relaxed);
                        return ViewerEvent::Frame(frame);
                    }
                    None => return self.closed(),
                },
            }
        }
    }

    fn closed(&self) -> ViewerEvent {
        let close = self
            .shared
            .close
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (code, reason) = close
            .clone()
            .unwrap_or_else(|| (1001, "the daemon let go of the session".to_owned()));
        ViewerEvent::Close { code, reason }
    }
}
