//! What one connection waits for. Ids are given out upwards; an answer to an id that was never given out breaks
//! the protocol, one to an id that nobody waits for any more is dropped.

use super::files::ReadSlot;
use super::outbox::lock;
use super::output::OutputSlot;
use super::watch::WatchSlot;
use handler_types::guest::{GuestError, ProcessNumber, Reply};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// Most JSON bytes of all unfinished answers that come in several parts.
const MOST_PARTS_BYTES: usize = 64 * 1024 * 1024;

/// How a request was answered.
pub(super) type Answer = Result<Reply, GuestError>;

/// Who waits for an answer, and what else it changes.
#[derive(Debug)]
pub(super) enum Waiting {
    /// A plain answer.
    Plain,
    /// An attachment: output that follows the answer is for this slot.
    Attach(Arc<OutputSlot>),
    /// A read: file content that follows the answer is for this slot.
    Read(Arc<ReadSlot>),
    /// A watch: events that follow the answer are for this slot.
    Watch(Arc<WatchSlot>),
}

#[derive(Debug)]
struct Entry {
    waiting: Waiting,
    answer: oneshot::Sender<Answer>,
    parts: Option<Reply>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Table {
    last_id: u32,
    entries: HashMap<u32, Entry>,
    reads: HashMap<u32, Arc<ReadSlot>>,
    watches: HashMap<u32, Arc<WatchSlot>>,
    outputs: HashMap<ProcessNumber, Arc<OutputSlot>>,
    /// Processes that were attached on this connection at some time.
    attached: HashSet<ProcessNumber>,
    closed: bool,
    /// JSON bytes of all parts that wait for more.
    parts_bytes: usize,
}

/// The table of one connection.
#[derive(Debug, Default)]
pub(super) struct Pending(Mutex<Table>);

impl Pending {
    /// Gives out an id. `None`: the connection is closed or has used up its ids.
    pub(super) fn open(&self, waiting: Waiting) -> Option<(u32, oneshot::Receiver<Answer>)> {
        let mut table = lock(&self.0);
        if table.closed {
            return None;
        }
        let id = table.last_id.checked_add(1)?;
        table.last_id = id;
        if let Waiting::Attach(slot) = &waiting {
            // What still comes of an earlier attachment is not for anyone.
            slot.pause();
            table.attached.insert(slot.process);
            table.outputs.remove(&slot.process);
        }
        let (answer, receiver) = oneshot::channel();
        let entry = Entry {
            waiting,
            answer,
            parts: None,
            bytes: 0,
        };
        table.entries.insert(id, entry);
        Some((id, receiver))
    }

    /// Nobody waits any more.
    pub(super) fn forget(&self, id: u32) {
        let mut table = lock(&self.0);
        table.take(id);
        table.reads.remove(&id);
        table.watches.remove(&id);
    }

    /// Output of the process is not wanted any more.
    pub(super) fn detach(&self, slot: &Arc<OutputSlot>) {
        let mut table = lock(&self.0);
        if table
            .outputs
            .get(&slot.process)
            .is_some_and(|known| Arc::ptr_eq(known, slot))
        {
            table.outputs.remove(&slot.process);
        }
    }

    /// An answer of `length` JSON bytes came.
    pub(super) fn answer(
        &self,
        id: u32,
        answer: Answer,
        length: usize,
    ) -> Result<(), &'static str> {
        let mut table = lock(&self.0);
        if id == 0 || id > table.last_id {
            return Err("an answer to a request that was never made");
        }
        let Some(mut entry) = table.take(id) else {
            // A read that was answered may still fail half-way.
            if let (Some(read), Err(error)) = (table.reads.remove(&id), &answer) {
                read.fail(&error.message);
            }
            return Ok(());
        };
        let answer = match answer {
            Err(error) => Err(error),
            Ok(reply) => {
                entry.bytes += length;
                if table.parts_bytes.saturating_add(entry.bytes) > MOST_PARTS_BYTES {
                    return Err("an answer longer than allowed");
                }
                let (whole, more) = join(entry.parts.take(), reply)?;
                if more {
                    entry.parts = Some(whole);
                    table.parts_bytes += entry.bytes;
                    table.entries.insert(id, entry);
                    return Ok(());
                }
                Ok(whole)
            }
        };
        if let Ok(reply) = &answer {
            table.settle(id, &entry.waiting, reply)?;
        }
        // The one who asked may have gone meanwhile.
        entry.answer.send(answer).ok();
        Ok(())
    }

    /// The slot that output of a process is for. `Ok(None)`: nobody wants it any more.
    pub(super) fn output(
        &self,
        process: ProcessNumber,
    ) -> Result<Option<Arc<OutputSlot>>, &'static str> {
        let table = lock(&self.0);
        match table.outputs.get(&process) {
            Some(slot) => Ok(Some(slot.clone())),
            None if table.attached.contains(&process) => Ok(None),
            None => Err("output of a process that was never attached"),
        }
    }

    /// The read that content is for. `Ok(None)`: nobody wants it any more.
    pub(super) fn read(&self, id: u32) -> Result<Option<Arc<ReadSlot>>, &'static str> {
        let table = lock(&self.0);
        if id == 0 || id > table.last_id {
            return Err("file content for a request that was never made");
        }
        if table.entries.contains_key(&id) {
            return Err("file content before the answer");
        }
        Ok(table.reads.get(&id).cloned())
    }

    /// The watch that events are for. `Ok(None)`: nobody wants it any more.
    pub(super) fn watch(&self, id: u32) -> Result<Option<Arc<WatchSlot>>, &'static str> {
        let table = lock(&self.0);
        if id == 0 || id > table.last_id || table.entries.contains_key(&id) {
            return Err("events of a watch that was never answered");
        }
        Ok(table.watches.get(&id).cloned())
    }

    /// The connection is gone: everyone who waits is told, by dropping.
    pub(super) fn close(&self, reason: &str) {
        let mut table = lock(&self.0);
        table.closed = true;
        let entries = std::mem::take(&mut table.entries);
        let reads = std::mem::take(&mut table.reads);
        let outputs = std::mem::take(&mut table.outputs);
        let watches = std::mem::take(&mut table.watches);
        drop(table);
        drop(entries);
        for read in reads.into_values() {
            read.fail(reason);
        }
        for watch in watches.into_values() {
            watch.lose();
        }
        for output in outputs.into_values() {
            output.pause();
        }
    }
}

impl Table {
    /// Takes an entry off; what it holds no longer counts.
    fn take(&mut self, id: u32) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        self.parts_bytes = self.parts_bytes.saturating_sub(entry.bytes);
        Some(entry)
    }

    /// Does what an answer changes before anything that follows it on the connection is looked at.
    fn settle(&mut self, id: u32, waiting: &Waiting, reply: &Reply) -> Result<(), &'static str> {
        match (waiting, reply) {
            (Waiting::Plain, _) => Ok(()),
            (Waiting::Attach(slot), Reply::Process { process }) => {
                if process.process != slot.process {
                    return Err("an attachment answered with another process");
                }
                slot.begin(process);
                self.outputs.insert(slot.process, slot.clone());
                Ok(())
            }
            (Waiting::Read(slot), Reply::Reading { .. }) => {
                self.reads.insert(id, slot.clone());
                Ok(())
            }
            (Waiting::Watch(slot), Reply::Done) => {
                self.watches.insert(id, slot.clone());
                Ok(())
            }
            _ => Err("an answer of another kind than was asked for"),
        }
    }
}

/// Joins a part to the parts before it; says whether more follow.
fn join(before: Option<Reply>, part: Reply) -> Result<(Reply, bool), &'static str> {
    match (before, part) {
        (None, part) => {
            let more = matches!(
                part,
                Reply::Processes { more: true, .. }
                    | Reply::Entries { more: true, .. }
                    | Reply::Table { more: true, .. }
            );
            Ok((part, more))
        }
        (
            Some(Reply::Processes { mut processes, .. }),
            Reply::Processes {
                processes: next,
                more,
            },
        ) => {
            processes.extend(next);
            Ok((Reply::Processes { processes, more }, more))
        }
        (
            Some(Reply::Entries { mut entries, .. }),
            Reply::Entries {
                entries: next,
                truncated,
                more,
            },
        ) => {
            entries.extend(next);
            let whole = Reply::Entries {
                entries,
                truncated,
                more,
            };
            Ok((whole, more))
        }
        (
            Some(Reply::Table { mut processes, .. }),
            Reply::Table {
                processes: next,
                more,
            },
        ) => {
            processes.extend(next);
            Ok((Reply::Table { processes, more }, more))
        }
        _ => Err("the parts of an answer do not fit together"),
    }
}
