//! What waits for one viewer.
//!
//! Invariant: at most [`LIMIT`] bytes and [`MOST`] items wait. A viewer that is further behind is given none of it,
//! but a redraw when it can take something again; it never makes the terminal or another viewer wait for ever.

use bytes::Bytes;
use handler_types::terminal::TerminalEvent;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// Most output bytes that wait for a viewer.
const LIMIT: usize = 512 * 1024;
/// Most items.
const MOST: usize = 4096;

/// One frame for a viewer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Frame {
    /// Terminal output.
    Output(Bytes),
    /// Something else.
    Event(TerminalEvent),
}

#[derive(Debug, Default)]
struct State {
    frames: VecDeque<Frame>,
    bytes: usize,
    /// Output left out since the viewer fell behind.
    skipped: Option<u64>,
    /// The viewer was told to ask for a redraw, which has not come.
    is_awaited: bool,
    /// When it last took something.
    taken: Option<Instant>,
    is_over: bool,
}

/// The queue; both ends hold it.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    state: Arc<Mutex<State>>,
    /// For the viewer: there is something.
    filled: Arc<Notify>,
    /// For the terminal: a viewer took something, or fell behind.
    pub(super) moved: Arc<Notify>,
}

/// What a viewer gets next.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// This.
    Frame(Frame),
    /// Nothing before a redraw was asked for.
    Behind,
    /// Nothing any more.
    Over,
}

impl Queue {
    pub(super) fn new(moved: Arc<Notify>) -> Self {
        Self {
            state: Arc::default(),
            filled: Arc::default(),
            moved,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Output, to be left out when too much waits already.
    pub(super) fn output(&self, bytes: &Bytes) {
        let mut state = self.lock();
        if let Some(skipped) = &mut state.skipped {
            *skipped += bytes.len() as u64;
            return;
        }
        if state.bytes + bytes.len() > LIMIT || state.frames.len() >= MOST {
            fall_behind(&mut state);
            state.skipped = state.skipped.map(|n| n + bytes.len() as u64);
        } else {
            state.bytes += bytes.len();
            state.frames.push_back(Frame::Output(bytes.clone()));
        }
        drop(state);
        self.filled.notify_one();
    }

    /// An event; a viewer that is behind gets it with the redraw.
    pub(super) fn event(&self, event: TerminalEvent) {
        let mut state = self.lock();
        if state.skipped.is_some() {
            return;
        }
        if state.frames.len() >= MOST {
            fall_behind(&mut state);
        } else {
            state.frames.push_back(Frame::Event(event));
        }
        drop(state);
        self.filled.notify_one();
    }

    /// A whole redraw instead of what waits.
    pub(super) fn redraw(&self, bytes: Bytes, more: impl IntoIterator<Item = TerminalEvent>) {
        let mut state = self.lock();
        if state.skipped.is_none() {
            fall_behind(&mut state);
        }
        let skipped = state.skipped.take().unwrap_or(0);
        state.is_awaited = false;
        state.bytes = bytes.len();
        let begin = TerminalEvent::RedrawBegin { skipped };
        let frames = [Frame::Event(begin), Frame::Output(bytes)];
        state.frames.extend(frames);
        let more = [TerminalEvent::RedrawEnd].into_iter().chain(more);
        state.frames.extend(more.map(Frame::Event));
        drop(state);
        self.filled.notify_one();
    }

    /// A redraw behind what waits: nothing was left out, but the screen has another size now.
    pub(super) fn repaint(&self, bytes: Bytes) {
        let mut state = self.lock();
        if state.skipped.is_some() {
            return;
        }
        if state.bytes + bytes.len() > LIMIT || state.frames.len() + 3 >= MOST {
            fall_behind(&mut state);
        } else {
            state.bytes += bytes.len();
            state.frames.extend([
                Frame::Event(TerminalEvent::RedrawBegin { skipped: 0 }),
                Frame::Output(bytes),
                Frame::Event(TerminalEvent::RedrawEnd),
            ]);
        }
        drop(state);
        self.filled.notify_one();
    }

    /// The last event; after it nothing is taken.
    pub(super) fn finish(&self, last: TerminalEvent) {
        let mut state = self.lock();
        state.frames.push_back(Frame::Event(last));
        state.is_over = true;
        drop(state);
        self.filled.notify_one();
    }

    /// Whether output would make it fall behind, though it keeps up so far.
    pub(super) fn is_full(&self) -> bool {
        let state = self.lock();
        state.skipped.is_none() && state.bytes > LIMIT / 2
    }

    /// Whether it keeps up.
    pub(super) fn is_live(&self) -> bool {
        self.lock().skipped.is_none()
    }

    /// When it last took something.
    pub(super) fn taken(&self) -> Option<Instant> {
        self.lock().taken
    }

    /// Leaves out what waits: nobody waits for this viewer any longer.
    pub(super) fn give_up(&self) {
        fall_behind(&mut self.lock());
        self.filled.notify_one();
    }

    /// The next frame. Cancel safe.
    pub(crate) async fn next(&self) -> Next {
        loop {
            let filled = self.filled.notified();
            if let Some(next) = self.take() {
                return next;
            }
            filled.await;
        }
    }

    /// Waits until the redraw that was asked for came, or nothing will come. It may have been left out again since:
    /// then the next thing is [`Next::Behind`] once more.
    pub(crate) async fn wait_for_redraw(&self) {
        loop {
            let filled = self.filled.notified();
            {
                let state = self.lock();
                if !state.is_awaited || state.is_over {
                    return;
                }
            }
            filled.await;
        }
    }

    fn take(&self) -> Option<Next> {
        let mut state = self.lock();
        if let Some(frame) = state.frames.pop_front() {
            if let Frame::Output(bytes) = &frame {
                state.bytes -= bytes.len();
            }
            state.taken = Some(Instant::now());
            drop(state);
            self.moved.notify_one();
            return Some(Next::Frame(frame));
        }
        if state.is_over {
            return Some(Next::Over);
        }
        state.skipped?;
        state.is_awaited = true;
        Some(Next::Behind)
    }
}

fn fall_behind(state: &mut State) {
    let left_out = left_out(&state.frames);
    state.frames.clear();
    state.bytes = 0;
    state.skipped = Some(state.skipped.unwrap_or(0) + left_out);
}

/// Bytes of the program that a viewer does not get when these frames go: those of redraws are none of its, but what
/// a redraw was to say was left out is not said then either.
fn left_out<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> u64 {
    let (mut bytes, mut in_redraw) = (0, false);
    for frame in frames {
        match frame {
            Frame::Event(TerminalEvent::RedrawBegin { skipped }) => {
                bytes += skipped;
                in_redraw = true;
            }
            Frame::Event(TerminalEvent::RedrawEnd) => {
                if !in_redraw {
                    // Its beginning is with the viewer already: what came before here was its screen.
                    bytes = 0;
                }
                in_redraw = false;
            }
            Frame::Output(output) if !in_redraw => bytes += output.len() as u64,
            Frame::Output(_) | Frame::Event(_) => {}
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_viewer_too_far_behind_gets_a_redraw_and_then_what_follows() {
        let queue = Queue::new(Arc::default());
        let piece = Bytes::from(vec![b'x'; 100 * 1024]);
        for _ in 0..20 {
            queue.output(&piece);
            assert!(queue.lock().bytes <= LIMIT);
        }
        assert!(!queue.is_live());
        assert_eq!(queue.next().await, Next::Behind);
        queue.redraw(Bytes::from_static(b"screen"), []);
        queue.output(&Bytes::from_static(b"more"));
        let mut seen = Vec::new();
        while let Next::Frame(frame) = queue.take().unwrap_or(Next::Over) {
            seen.push(frame);
        }
        let skipped = 20 * 100 * 1024;
        assert_eq!(
            seen,
            [
                Frame::Event(TerminalEvent::RedrawBegin { skipped }),
                Frame::Output(Bytes::from_static(b"screen")),
                Frame::Event(TerminalEvent::RedrawEnd),
                Frame::Output(Bytes::from_static(b"more")),
            ]
        );
        queue.finish(TerminalEvent::Bell);
        assert_eq!(
            queue.next().await,
            Next::Frame(Frame::Event(TerminalEvent::Bell))
        );
        assert_eq!(queue.next().await, Next::Over);
    }

    #[tokio::test]
    async fn a_redraw_that_was_left_out_before_it_was_taken_is_asked_for_again() {
        let queue = Queue::new(Arc::default());
        queue.give_up();
        assert_eq!(queue.next().await, Next::Behind);
        queue.redraw(Bytes::from_static(b"a screen"), []);
        queue.give_up();
        let waited = queue.wait_for_redraw();
        tokio::time::timeout(std::time::Duration::from_secs(5), waited)
            .await
            .expect("the redraw came");
        assert_eq!(queue.next().await, Next::Behind);
    }

    #[test]
    fn who_falls_behind_during_a_redraw_is_still_told_all_that_was_left_out() {
        for taken in 0..=3 {
            let queue = Queue::new(Arc::default());
            queue.output(&Bytes::from(vec![b'x'; 10]));
            queue.give_up();
            queue.redraw(Bytes::from_static(b"a screen"), []);
            let mut told = 0;
            for _ in 0..taken {
                if let Some(Next::Frame(Frame::Event(TerminalEvent::RedrawBegin { skipped }))) =
                    queue.take()
                {
                    told += skipped;
                }
            }
            queue.output(&Bytes::from_static(b"more"));
            queue.give_up();
            queue.redraw(Bytes::from_static(b"a screen"), []);
            if let Some(Next::Frame(Frame::Event(TerminalEvent::RedrawBegin { skipped }))) =
                queue.take()
            {
                told += skipped;
            }
            assert_eq!(told, 14, "{taken} frames taken");
        }
    }
}
