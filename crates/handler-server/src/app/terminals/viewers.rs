//! The viewers of one terminal, and whose size it has.
//!
//! Invariant: at most one viewer owns the size, and it may write. The first that may becomes the owner; another one
//! only by taking it, or when the owner leaves.

use super::queue::Queue;
use bytes::Bytes;
use handler_types::guest::TtySize;
use handler_types::terminal::{TerminalEvent, ViewerMode};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How long everyone's slowness holds the program up, while none of them takes anything.
const PATIENCE: Duration = Duration::from_secs(1);

/// A viewer's number within its terminal.
pub(crate) type ViewerId = u64;

#[derive(Debug)]
struct Viewer {
    queue: Queue,
    mode: ViewerMode,
    /// Its own size, if it told one.
    size: Option<TtySize>,
    came: Instant,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Viewers {
    all: BTreeMap<ViewerId, Viewer>,
    next: ViewerId,
    owner: Option<ViewerId>,
    /// Some viewer took something.
    pub(super) moved: Arc<Notify>,
}

impl Viewers {
    /// A new one; the size it sets, if it becomes the owner.
    pub(super) fn add(
        &mut self,
        mode: ViewerMode,
        size: Option<TtySize>,
    ) -> (ViewerId, Queue, Option<TtySize>) {
        self.next += 1;
        let queue = Queue::new(self.moved.clone());
        let viewer = Viewer {
            queue: queue.clone(),
            mode,
            size,
            came: Instant::now(),
        };
        self.all.insert(self.next, viewer);
        let owns = self.owner.is_none() && mode == ViewerMode::Write && size.is_some();
        if owns {
            self.owner = Some(self.next);
        }
        (self.next, queue, size.filter(|_| owns))
    }

    /// One has left; the size the terminal gets from the one who follows it as owner.
    pub(super) fn remove(&mut self, id: ViewerId) -> Option<TtySize> {
        self.all.remove(&id);
        if self.owner != Some(id) {
            return None;
        }
        let mut others = self.all.iter();
        let heir = others.find(|(_, v)| v.mode == ViewerMode::Write && v.size.is_some());
        self.owner = heir.map(|(id, _)| *id);
        heir.and_then(|(_, viewer)| viewer.size)
    }

    /// A viewer's size has changed, or it takes the ownership; whether the terminal gets that size.
    pub(super) fn resized(&mut self, id: ViewerId, size: TtySize, takes: bool) -> bool {
        let Some(viewer) = self.all.get_mut(&id) else {
            return false;
        };
        viewer.size = Some(size);
        if viewer.mode == ViewerMode::Write && (takes || self.owner.is_none()) {
            self.owner = Some(id);
        }
        self.owner == Some(id)
    }

    pub(super) fn owns(&self, id: ViewerId) -> bool {
        self.owner == Some(id)
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.all.len()).unwrap_or(u32::MAX)
    }

    /// Whether a viewer's terminal answers the program's questions.
    pub(super) fn any_writes(&self) -> bool {
        self.all.values().any(|v| v.mode == ViewerMode::Write)
    }

    pub(super) fn queue(&self, id: ViewerId) -> Option<&Queue> {
        self.all.get(&id).map(|viewer| &viewer.queue)
    }

    pub(super) fn output(&self, bytes: &Bytes) {
        self.all.values().for_each(|v| v.queue.output(bytes));
    }

    pub(super) fn event(&self, event: &TerminalEvent) {
        let all = self.all.values();
        all.for_each(|viewer| viewer.queue.event(event.clone()));
    }

    /// Tells all but the newcomer the size, each whether it owns it, and draws the screen anew for those that keep
    /// up.
    pub(super) fn sized(&self, size: TtySize, redraw: Option<&Bytes>, newcomer: Option<ViewerId>) {
        for (id, viewer) in self.all.iter().filter(|(id, _)| Some(**id) != newcomer) {
            let told = self.size_event(*id, size);
            match redraw {
                Some(bytes) if viewer.queue.is_live() => {
                    viewer.queue.event(told);
                    viewer.queue.repaint(bytes.clone());
                }
                _ => viewer.queue.event(told),
            }
        }
    }

    pub(super) fn size_event(&self, id: ViewerId, size: TtySize) -> TerminalEvent {
        TerminalEvent::Size {
            cols: size.cols,
            rows: size.rows,
            owner: self.owns(id),
        }
    }

    /// Ends all of them; those that are behind see the screen once more.
    pub(super) fn finish(&mut self, last: &TerminalEvent, redraw: &Bytes) {
        for (_, viewer) in std::mem::take(&mut self.all) {
            if !viewer.queue.is_live() {
                viewer.queue.redraw(redraw.clone(), []);
            }
            viewer.queue.finish(last.clone());
        }
        self.owner = None;
    }

    /// Until when the program is held up because every viewer that keeps up has enough; none: it is not.
    pub(super) fn hold_until(&self) -> Option<Instant> {
        let mut until: Option<Instant> = None;
        for viewer in self.all.values().filter(|v| v.queue.is_live()) {
            if !viewer.queue.is_full() {
                return None;
            }
            let since = viewer.queue.taken().unwrap_or(viewer.came);
            let patience = since.max(viewer.came) + PATIENCE;
            until = Some(until.map_or(patience, |u| u.max(patience)));
        }
        until.filter(|until| *until > Instant::now())
    }

    /// Leaves those behind that hold the program up.
    pub(super) fn give_up(&self) {
        let all = self.all.values();
        all.filter(|v| v.queue.is_full())
            .for_each(|v| v.queue.give_up());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(cols: u16) -> TtySize {
        TtySize { cols, rows: 24 }
    }

    #[test]
    fn the_first_writer_owns_the_size_until_it_is_taken_or_it_leaves() {
        let mut viewers = Viewers::default();
        let (reader, _, set) = viewers.add(ViewerMode::Read, Some(size(10)));
        assert_eq!(set, None);
        let (first, _, set) = viewers.add(ViewerMode::Write, Some(size(20)));
        assert_eq!(set, Some(size(20)));
        let (second, _, set) = viewers.add(ViewerMode::Write, Some(size(30)));
        assert_eq!(set, None);
        assert!(!viewers.resized(second, size(31), false));
        assert!(
            !viewers.resized(reader, size(11), true),
            "a reader takes nothing"
        );
        assert!(viewers.resized(first, size(21), false));
        assert!(viewers.resized(second, size(32), true));
        assert!(!viewers.owns(first) && viewers.owns(second));
        assert_eq!(viewers.remove(second), Some(size(21)));
        assert!(viewers.owns(first));
        assert_eq!(viewers.remove(first), None);
        assert!(!viewers.owns(reader));
    }

    #[test]
    fn only_when_all_have_enough_the_program_is_held_up_and_not_for_long() {
        let mut viewers = Viewers::default();
        assert_eq!(viewers.hold_until(), None);
        let (_, slow, _) = viewers.add(ViewerMode::Write, None);
        let (other, _, _) = viewers.add(ViewerMode::Read, None);
        slow.output(&Bytes::from(vec![0; 400 * 1024]));
        assert_eq!(viewers.hold_until(), None, "the other keeps up");
        viewers.remove(other);
        let until = viewers.hold_until().expect("the only one has enough");
        assert!(until <= Instant::now() + PATIENCE);
        viewers.give_up();
        assert_eq!(viewers.hold_until(), None);
        assert!(!slow.is_live());
    }
}
