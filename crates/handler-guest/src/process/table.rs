//! The processes a guest knows, by number and by key.
//!
//! Invariant: at most [`MAX_PROCESSES`] are known, and of those that ended and were sent in full at
//! most [`MAX_SPENT`]; a number is never used again.

use super::Process;
use crate::fail;
use handler_types::guest::{GuestError, GuestErrorCode, ProcessNumber};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Most processes known at once.
pub(crate) const MAX_PROCESSES: usize = 4096;
/// Most ended processes without unacknowledged output; the oldest is forgotten first.
pub(crate) const MAX_SPENT: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Table {
    last: ProcessNumber,
    processes: BTreeMap<ProcessNumber, Rc<Process>>,
    keys: HashMap<String, ProcessNumber>,
}

impl Table {
    /// A number for a new process.
    pub(crate) fn next_number(&mut self) -> Result<ProcessNumber, GuestError> {
        self.forget_spent();
        if self.processes.len() >= MAX_PROCESSES {
            let message = format!("{MAX_PROCESSES} processes are known already");
            return Err(fail(GuestErrorCode::Limit, message));
        }
        self.last = self
            .last
            .checked_add(1)
            .ok_or_else(|| fail(GuestErrorCode::Limit, "all process numbers were used"))?;
        Ok(self.last)
    }

    pub(crate) fn insert(&mut self, process: Rc<Process>) {
        if !process.key.is_empty() {
            self.keys.insert(process.key.clone(), process.number);
        }
        self.processes.insert(process.number, process);
    }

    pub(crate) fn remove(&mut self, number: ProcessNumber) {
        if let Some(process) = self.processes.remove(&number) {
            self.keys.remove(&process.key);
        }
    }

    /// A process, whether it runs its program yet or not.
    pub(crate) fn any(&self, number: ProcessNumber) -> Option<Rc<Process>> {
        self.processes.get(&number).map(Rc::clone)
    }

    /// A process the host was told of.
    pub(crate) fn get(&self, number: ProcessNumber) -> Result<Rc<Process>, GuestError> {
        self.any(number)
            .filter(|process| process.running.get())
            .ok_or_else(|| fail(GuestErrorCode::NotFound, format!("no process {number}")))
    }

    pub(crate) fn by_key(&self, key: &str) -> Option<Rc<Process>> {
        self.any(*self.keys.get(key)?)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Rc<Process>> {
        self.processes.values()
    }

    fn forget_spent(&mut self) {
        let spent: Vec<_> = self
            .processes
            .values()
            .filter(|process| process.is_spent())
            .map(|process| process.number)
            .collect();
        // One more is about to join.
        let excess = (spent.len() + 1).saturating_sub(MAX_SPENT);
        for number in spent.into_iter().take(excess) {
            self.remove(number);
        }
    }
}
