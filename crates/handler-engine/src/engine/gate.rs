//! How many sandboxes start at once, and who is next: one queue for each project, taken in turn, so that
//! one project's thousand does not keep another's one waiting.
//!
//! Invariant: `free` and the passes that live add up to the width; a pass that nobody takes any more goes on.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The right to start one sandbox; given back when dropped.
#[derive(Debug)]
pub(super) struct Pass {
    gate: Option<Arc<FairGate>>,
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(gate) = self.gate.take() {
            gate.give_back();
        }
    }
}

#[derive(Debug)]
struct Inner {
    width: i64,
    /// May be below zero after the gate became narrower.
    free: i64,
    most_waiting: usize,
    waiting: usize,
    queues: BTreeMap<String, VecDeque<oneshot::Sender<Pass>>>,
    turns: VecDeque<String>,
}

/// The gate.
#[derive(Debug)]
pub(super) struct FairGate(Mutex<Inner>);

impl FairGate {
    pub(super) fn new(width: u32, most_waiting: u32) -> Arc<Self> {
        let width = i64::from(width.max(1));
        Arc::new(Self(Mutex::new(Inner {
            width,
            free: width,
            most_waiting: most_waiting as usize,
            waiting: 0,
            queues: BTreeMap::new(),
            turns: VecDeque::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn; `None`: too many wait already.
    pub(super) async fn enter(self: &Arc<Self>, project: Option<&str>) -> Option<Pass> {
        let turn = {
            let mut inner = self.lock();
            if inner.free > 0 {
                inner.free -= 1;
                return Some(self.pass());
            }
            if inner.waiting >= inner.most_waiting {
                return None;
            }
            inner.join(project.unwrap_or_default())
        };
        turn.await.ok()
    }

    /// Another width; those who wait take new places at once.
    pub(super) fn resize(self: &Arc<Self>, width: u32, most_waiting: u32) {
        let width = i64::from(width.max(1));
        let more = {
            let mut inner = self.lock();
            inner.most_waiting = most_waiting as usize;
            let more = width - inner.width;
            inner.width = width;
            inner.free += more;
            more
        };
        for _ in 0..more.max(0) {
            let mut inner = self.lock();
            if inner.free <= 0 || inner.waiting == 0 {
                return;
            }
            inner.free -= 1;
            drop(inner);
            drop(self.pass());
        }
    }

    /// Passes given out, and how many wait.
    pub(super) fn figures(&self) -> (u64, u64) {
        let inner = self.lock();
        let out = u64::try_from(inner.width - inner.free).unwrap_or(0);
        (out, inner.waiting as u64)
    }

    fn pass(self: &Arc<Self>) -> Pass {
        Pass {
            gate: Some(self.clone()),
        }
    }

    fn give_back(self: &Arc<Self>) {
        loop {
            let next = {
                let mut inner = self.lock();
                // A gate that became narrower takes its places back first.
                let next = if inner.free < 0 { None } else { inner.next() };
                if next.is_none() {
                    inner.free += 1;
                    return;
                }
                next
            };
            let Some(next) = next else { return };
            match next.send(self.pass()) {
                Ok(()) => return,
                // It does not wait any more. Its pass must not come back twice.
                Err(mut pass) => pass.gate = None,
            }
        }
    }
}

impl Inner {
    fn join(&mut self, project: &str) -> oneshot::Receiver<Pass> {
        let (turn, mine) = oneshot::channel();
        self.waiting += 1;
        let queue = self.queues.entry(project.to_owned()).or_default();
        if queue.is_empty() {
            self.turns.push_back(project.to_owned());
        }
        queue.push_back(turn);
        mine
    }

    fn next(&mut self) -> Option<oneshot::Sender<Pass>> {
        let project = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&project)?;
        let next = queue.pop_front();
        self.waiting -= usize::from(next.is_some());
        if queue.is_empty() {
            self.queues.remove(&project);
        } else {
            self.turns.push_back(project);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn projects_take_turns_and_nobody_waits_for_who_left() {
        let gate = FairGate::new(1, 8);
        let first = gate.enter(None).await.expect("free");
        let mut order: Vec<_> = ["a", "a", "a", "b"]
            .map(|project| Box::pin(gate.enter(Some(project))))
            .into_iter()
            .collect();
        for waiting in &mut order {
            assert!(waiting.now_or_never().is_none());
        }
        assert_eq!(gate.figures(), (1, 4));
        // The first of `a` does not want it any more.
        drop(order.remove(0));
        drop(first);
        let b = order.pop().expect("b");
        assert!(order[0].as_mut().now_or_never().is_none(), "it is b's turn");
        let pass = b.now_or_never().flatten().expect("b's turn");
        drop(pass);
        let second = order.remove(0).now_or_never().flatten().expect("a's turn");
        assert!(order[0].as_mut().now_or_never().is_none());
        drop(second);
        drop(order.remove(0).now_or_never().flatten().expect("the last"));
        assert_eq!(gate.figures(), (0, 0));
    }

    #[tokio::test]
    async fn the_queue_is_bounded_and_the_width_may_change() {
        let gate = FairGate::new(1, 1);
        let first = gate.enter(None).await.expect("free");
        let mut second = Box::pin(gate.enter(None));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(gate.enter(None).now_or_never().expect("at once").is_none());
        gate.resize(2, 1);
        let second = second.now_or_never().flatten().expect("a new place");
        gate.resize(1, 1);
        drop(second);
        let mut third = Box::pin(gate.enter(None));
        assert!(third.as_mut().now_or_never().is_none(), "narrower again");
        drop(first);
        assert!(third.now_or_never().flatten().is_some());
    }
}
