//! Where output and input of processes wait, whatever connection carries them.

use super::happenings::{Happenings, ProcessHappening};
use super::input::InputSlot;
use super::outbox::lock;
use super::output::OutputSlot;
use handler_types::guest::{Exit, GuestError, ProcessNumber};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

/// Where output and input of processes wait; outlives connections.
#[derive(Debug, Default)]
pub(super) struct Slots {
    outputs: Mutex<HashMap<ProcessNumber, Arc<OutputSlot>>>,
    inputs: Mutex<HashMap<ProcessNumber, Arc<InputSlot>>>,
    /// When a process last ended.
    last_exit: Mutex<Option<Instant>>,
    pub(super) happenings: Happenings,
}

impl Slots {
    pub(super) fn last_exit(&self) -> Option<Instant> {
        *lock(&self.last_exit)
    }

    pub(super) fn exited(&self, process: ProcessNumber, exit: Exit) {
        *lock(&self.last_exit) = Some(Instant::now());
        self.happenings.tell(ProcessHappening::Ended(process, exit));
        if let Some(slot) = lock(&self.outputs).get(&process) {
            slot.exited(exit);
        }
        if let Some(slot) = lock(&self.inputs).remove(&process) {
            slot.refuse(super::calls::gone("the process has ended"));
        }
    }

    pub(super) fn credit(&self, process: ProcessNumber, received: u64) -> Result<(), &'static str> {
        match self.input(process) {
            Some(slot) => slot.credit(received),
            None => Ok(()),
        }
    }

    pub(super) fn refuse(&self, process: ProcessNumber, error: GuestError) {
        if let Some(slot) = self.input(process) {
            slot.refuse(error);
        }
    }

    pub(super) fn input(&self, process: ProcessNumber) -> Option<Arc<InputSlot>> {
        lock(&self.inputs).get(&process).cloned()
    }

    /// The input slot of a process; made with what the guest has when there is none.
    pub(super) fn input_or_new(&self, process: ProcessNumber, received: u64) -> Arc<InputSlot> {
        lock(&self.inputs)
            .entry(process)
            .or_insert_with(|| Arc::new(InputSlot::new(process, received)))
            .clone()
    }

    pub(super) fn forget_input(&self, process: ProcessNumber) {
        lock(&self.inputs).remove(&process);
    }

    /// Puts an output slot in; the one it replaces is told.
    pub(super) fn put_output(&self, slot: &Arc<OutputSlot>) {
        let old = lock(&self.outputs).insert(slot.process, slot.clone());
        if let Some(old) = old {
            old.lose("someone else reads this process now");
        }
    }

    /// Takes an output slot out, if it is still the one; says whether it was.
    pub(super) fn remove_output(&self, slot: &Arc<OutputSlot>) -> bool {
        let mut outputs = lock(&self.outputs);
        let is_it = outputs
            .get(&slot.process)
            .is_some_and(|known| Arc::ptr_eq(known, slot));
        if is_it {
            outputs.remove(&slot.process);
        }
        is_it
    }

    pub(super) fn all_outputs(&self) -> Vec<Arc<OutputSlot>> {
        lock(&self.outputs).values().cloned().collect()
    }

    pub(super) fn all_inputs(&self) -> Vec<Arc<InputSlot>> {
        lock(&self.inputs).values().cloned().collect()
    }

    pub(super) fn lose_all(&self, reason: &str) {
        for output in self.all_outputs() {
            output.lose(reason);
        }
        for input in self.all_inputs() {
            input.refuse(super::calls::gone(reason));
        }
    }
}
