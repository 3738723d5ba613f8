//! The viewers attached, and what stage each is at.
//!
//! ```text
//!  Fresh ── session/load ──► Replaying ── caught up ──► Live
//!                              rounds from disk; in the last one live updates are held back
//! ```
//!
//! Only updates are held back: everything else a viewer needs is told when it becomes live.

use super::queue::{self, QUEUE, QUEUE_BYTES, ViewerQueue, ViewerReceiver, ViewerSender};
use crate::acp::{RawId, codes};
use crate::live::ViewerId;
use crate::owner::Command;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// A replay under way.
#[derive(Debug)]
pub(crate) struct Replaying {
    /// The viewer's id of its `session/load`.
    pub request: RawId,
    /// Updates since the last round began, when it is the last round.
    held: Option<VecDeque<Bytes>>,
    held_bytes: usize,
    /// The task that reads; ends with this value.
    task: Option<AbortOnDropHandle<()>>,
}

#[derive(Debug)]
enum Stage {
    Fresh,
    Replaying(Replaying),
    Live,
}

#[derive(Debug)]
struct Viewer {
    queue: ViewerQueue,
    stage: Stage,
}

/// All viewers of a session, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    viewers: BTreeMap<ViewerId, Viewer>,
    next: ViewerId,
    gone: JoinSet<ViewerId>,
}

impl Roster {
    /// Viewers attached.
    #[must_use]
    pub(crate) fn count(&self) -> usize {
        self.viewers.len()
    }

    /// Whether some viewer is live.
    #[must_use]
    pub(crate) fn has_live(&self) -> bool {
        self.viewers
            .values()
            .any(|viewer| matches!(viewer.stage, Stage::Live))
    }

    /// Adds a viewer; beyond `max` the oldest is closed.
    pub(crate) fn attach(
        &mut self,
        max: usize,
        commands: mpsc::Sender<Command>,
    ) -> (ViewerSender, ViewerReceiver) {
        while self.viewers.len() >= max.max(1) {
            let Some(oldest) = self.viewers.keys().next().copied() else {
                break;
            };
            self.close(oldest, codes::CLOSE_ELSEWHERE, "attached elsewhere");
        }
        let id = self.next;
        self.next += 1;
        let (queue, sender, receiver) = queue::viewer(id, commands);
        let gone = queue.gone();
        self.gone.spawn(async move {
            gone.cancelled().await;
            id
        });
        self.viewers.insert(
            id,
            Viewer {
                queue,
                stage: Stage::Fresh,
            },
        );
        (sender, receiver)
    }

    /// Waits for a viewer to leave; pending while there are none. Cancel safe.
    pub(crate) async fn left(&mut self) -> ViewerId {
        loop {
            match self.gone.join_next().await {
                Some(Ok(viewer)) => return viewer,
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Forgets a viewer; false when it was not known.
    pub(crate) fn detach(&mut self, viewer: ViewerId) -> bool {
        self.viewers.remove(&viewer).is_some()
    }

    /// Closes a viewer at once.
    pub(crate) fn close(&mut self, viewer: ViewerId, code: u16, reason: &str) {
        if let Some(viewer) = self.viewers.remove(&viewer) {
            viewer.queue.close(code, reason, true);
        }
    }

    /// Closes all viewers once they got what is in their queues.
    pub(crate) fn close_all(&mut self, code: u16, reason: &str) {
        for (_, viewer) in std::mem::take(&mut self.viewers) {
            viewer.queue.close(code, reason, false);
        }
    }

    /// Gives one viewer a message.
    pub(crate) fn reply(&mut self, viewer: ViewerId, frame: impl Into<Bytes>) {
        let Some(known) = self.viewers.get(&viewer) else {
            return;
        };
        if !known.queue.push(frame.into()) {
            self.close(viewer, codes::CLOSE_TOO_SLOW, "too slow");
        }
    }

    /// Gives every live viewer a message.
    pub(crate) fn show(&mut self, frame: &Bytes, except: Option<ViewerId>) {
        self.send(frame, except, false);
    }

    /// Gives every live viewer an update, and holds it back for those in their last round.
    pub(crate) fn update(&mut self, frame: &Bytes, except: Option<ViewerId>) {
        self.send(frame, except, true);
    }

    fn send(&mut self, frame: &Bytes, except: Option<ViewerId>, is_update: bool) {
        let mut slow = Vec::new();
        for (id, viewer) in &mut self.viewers {
            if Some(*id) == except {
                continue;
            }
            let is_fine = match &mut viewer.stage {
                Stage::Live => viewer.queue.push(frame.clone()),
                Stage::Replaying(replaying) if is_update => replaying.hold(frame),
                Stage::Fresh | Stage::Replaying(_) => true,
            };
            if !is_fine {
                slow.push(*id);
            }
        }
        for viewer in slow {
            self.close(viewer, codes::CLOSE_TOO_SLOW, "too slow");
        }
    }

    /// Starts a replay; false when one is under way (or the viewer left).
    pub(crate) fn begin_replay(&mut self, viewer: ViewerId, request: RawId) -> bool {
        match self.viewers.get_mut(&viewer) {
            Some(known) if !matches!(known.stage, Stage::Replaying(_)) => {
                known.stage = Stage::Replaying(Replaying {
                    request,
                    held: None,
                    held_bytes: 0,
                    task: None,
                });
                true
            }
            _ => false,
        }
    }

    /// Begins a round of the replay; in the last one updates are held back from now on. Gives the lane to
    /// send to.
    pub(crate) fn begin_round(
        &mut self,
        viewer: ViewerId,
        is_last: bool,
    ) -> Option<mpsc::Sender<Bytes>> {
        let known = self.viewers.get_mut(&viewer)?;
        let Stage::Replaying(replaying) = &mut known.stage else {
            return None;
        };
        replaying.held = is_last.then(VecDeque::new);
        Some(known.queue.replay_lane())
    }

    /// Keeps the reading task with its viewer.
    pub(crate) fn keep_task(&mut self, viewer: ViewerId, task: tokio::task::JoinHandle<()>) {
        let task = AbortOnDropHandle::new(task);
        if let Some(Stage::Replaying(replaying)) = self
            .viewers
            .get_mut(&viewer)
            .map(|viewer| &mut viewer.stage)
        {
            replaying.task = Some(task);
        }
    }

    /// Whether the viewer's round was the last one; none when it has no replay under way.
    #[must_use]
    pub(crate) fn is_last_round(&self, viewer: ViewerId) -> Option<bool> {
        match &self.viewers.get(&viewer)?.stage {
            Stage::Replaying(replaying) => Some(replaying.held.is_some()),
            _ => None,
        }
    }

    /// Ends a replay: gives the updates held back and makes the viewer live. Returns the id of its load.
    pub(crate) fn end_replay(&mut self, viewer: ViewerId) -> Option<RawId> {
        let known = self.viewers.get_mut(&viewer)?;
        if !matches!(known.stage, Stage::Replaying(_)) {
            return None;
        }
        let Stage::Replaying(replaying) = std::mem::replace(&mut known.stage, Stage::Live) else {
            return None;
        };
        for frame in replaying.held.into_iter().flatten() {
            if !known.queue.push(frame) {
                self.close(viewer, codes::CLOSE_TOO_SLOW, "too slow");
                return None;
            }
        }
        Some(replaying.request)
    }
}

impl Replaying {
    fn hold(&mut self, frame: &Bytes) -> bool {
        let Some(held) = &mut self.held else {
            return true;
        };
        self.held_bytes += frame.len();
        if held.len() >= QUEUE || self.held_bytes > QUEUE_BYTES {
            return false;
        }
        held.push_back(frame.clone());
        true
    }
}
