//! What is sent to the host.
//!
//! Answers and events go first, in order; then every source with something to send gets one frame in
//! turn. Nothing is fetched from a source before the last batch was written.

use super::{Conn, Source};
use crate::files::read;
use crate::guest::Guest;
use handler_types::frame::{encode_json, encode_output};
use handler_types::guest::{Message, ProcessNumber};
use std::rc::Rc;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;

/// Bytes after which a batch is written.
const BATCH: usize = 128 * 1024;

/// Sends until the host is gone.
pub(super) async fn write_answers(guest: &Rc<Guest>, conn: &Rc<Conn>, mut to: OwnedWriteHalf) {
    let mut batch = Vec::new();
    loop {
        fill(guest, conn, &mut batch);
        if batch.is_empty() {
            // Its buffer is given back while the connection is idle.
            batch = Vec::new();
            conn.wake.notified().await;
            continue;
        }
        if to.write_all(&batch).await.is_err() {
            return;
        }
        batch.clear();
        // Reading files is inline work: the others' turn.
        tokio::task::yield_now().await;
    }
}

fn fill(guest: &Guest, conn: &Rc<Conn>, batch: &mut Vec<u8>) {
    take_answers(conn, batch);
    while batch.len() < BATCH {
        let Some(source) = conn.ready.borrow_mut().pop_front() else {
            return;
        };
        let more = match source {
            Source::Process(number) => send_output(guest, conn, number, batch),
            Source::Credit(number) => send_credit(guest, conn, number, batch),
            Source::Read(request) => read::send_chunk(conn, request, batch),
            Source::Watch(request) => crate::watch::send_events(conn, request, batch),
        };
        if more {
            conn.ready.borrow_mut().push_back(source);
        }
    }
}

fn take_answers(conn: &Conn, batch: &mut Vec<u8>) {
    let answers = conn.answers.take();
    if !answers.is_empty() {
        if batch.is_empty() {
            *batch = answers;
        } else {
            batch.extend_from_slice(&answers);
        }
        conn.room.notify_waiters();
    }
}

/// Adds one frame of output; whether there is more to send now.
fn send_output(guest: &Guest, conn: &Conn, number: ProcessNumber, batch: &mut Vec<u8>) -> bool {
    let Some(process) = guest.table.borrow().any(number) else {
        return false;
    };
    let mut attached = process.attached.borrow_mut();
    let Some(to) = attached.as_mut().filter(|to| to.conn.id == conn.id) else {
        // Another connection took over since.
        return false;
    };
    let ring = process.ring.borrow();
    if let Some((stream, data)) = ring.at(to.cursor)
        && encode_output(number, to.cursor, stream, data, batch).is_ok()
    {
        to.cursor += data.len() as u64;
    }
    if to.cursor < ring.end() {
        return true;
    }
    if process.output_complete() && !to.end_sent {
        let end = ring.end();
        let message = Message::OutputEnd {
            process: number,
            end,
        };
        to.end_sent = encode_json(&message, batch).is_ok();
    }
    to.queued = false;
    false
}

fn send_credit(guest: &Guest, conn: &Conn, number: ProcessNumber, batch: &mut Vec<u8>) -> bool {
    if let Some(process) = guest.table.borrow().any(number)
        && process.credit_queued.get() == conn.id
    {
        process.credit_queued.set(0);
        let message = Message::InputCredit {
            process: number,
            received: process.input.borrow().taken(),
        };
        let _ = encode_json(&message, batch);
    }
    false
}
