//! One direction of a connection: messages in order, and how much of them waits.

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

/// Bytes that may wait before the other side is not read any more.
const ROOM: u64 = 32 * 1024 * 1024;
/// Bytes that may wait at all.
const MOST: u64 = 4 * ROOM;

/// The end where messages are put in.
pub(super) struct Lane {
    messages: mpsc::UnboundedSender<Bytes>,
    given: u64,
    taken: watch::Receiver<u64>,
    is_over: bool,
}

/// The end where they come out.
pub(super) struct LaneEnd {
    messages: mpsc::UnboundedReceiver<Bytes>,
    count: u64,
    taken: watch::Sender<u64>,
}

/// An empty lane.
pub(super) fn lane() -> (Lane, LaneEnd) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (taken_in, taken) = watch::channel(0);
    let lane = Lane {
        messages: sender,
        given: 0,
        taken,
        is_over: false,
    };
    let end = LaneEnd {
        messages: receiver,
        count: 0,
        taken: taken_in,
    };
    (lane, end)
}

impl Lane {
    /// Puts a message in; false when too much waits already.
    pub(super) fn put(&mut self, message: Vec<u8>) -> bool {
        self.given += message.len() as u64;
        // Nobody takes it any more: how it ended shows on the other lane.
        self.messages.send(message.into()).ok();
        self.waiting() <= MOST
    }

    fn waiting(&self) -> u64 {
        if self.is_over {
            return 0;
        }
        self.given.saturating_sub(*self.taken.borrow())
    }

    /// Whether what makes more of them may be read.
    pub(super) fn has_room(&self) -> bool {
        self.waiting() < ROOM
    }

    /// Waits until more was taken.
    pub(super) async fn moves(&mut self) {
        if self.taken.changed().await.is_err() {
            self.is_over = true;
        }
    }
}

impl LaneEnd {
    /// The next message; none: nothing will follow. The one before it is out of the way then.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        self.taken.send_replace(self.count);
        let message = self.messages.recv().await?;
        self.count += message.len() as u64;
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_waits_is_counted_until_it_is_taken_and_done() {
        let (mut lane, mut end) = lane();
        let big = usize::try_from(ROOM).expect("a size");
        assert!(lane.has_room() && lane.put(vec![0; big]));
        assert!(!lane.has_room());
        assert_eq!(end.next().await.expect("a message").len(), big);
        assert!(!lane.has_room(), "it is still under way");
        let next = tokio::spawn(async move { end.next().await });
        // Asking for the first message was a move as well.
        while !lane.has_room() {
            lane.moves().await;
        }
        drop(lane);
        assert!(next.await.expect("no panic").is_none());
    }

    #[tokio::test]
    async fn a_lane_that_nobody_empties_refuses_and_one_whose_end_is_gone_swallows() {
        let (mut lane, end) = lane();
        let big = usize::try_from(ROOM).expect("a size");
        for _ in 0..4 {
            assert!(lane.put(vec![0; big]));
        }
        assert!(!lane.put(vec![0]));
        drop(end);
        lane.moves().await;
        assert!(lane.has_room() && lane.put(vec![0; big]));
    }
}
