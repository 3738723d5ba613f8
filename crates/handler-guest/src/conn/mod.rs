//! One connection of the host.
//!
//! Owns what waits to be sent on it. Invariant: answers wait in a buffer with a bound, and everything
//! big (output, files) is fetched only when the connection can take it, so that a host that does not
//! read holds up nobody else and no memory.

mod dispatch;
mod reader;
mod writer;

use crate::fail;
use crate::files::read::Reading;
use crate::files::write::Incoming;
use crate::guest::Guest;
use crate::watch::Watching;
use handler_types::frame::encode_json;
use handler_types::guest::{GuestError, GuestErrorCode, Message, ProcessNumber, Reply};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use tokio::net::UnixStream;
use tokio::sync::Notify;

/// Bytes of answers above which no more requests are read.
const ANSWERS_PAUSE: usize = 1024 * 1024;
/// Bytes of answers and events above which the connection is given up as dead.
const ANSWERS_MOST: usize = 8 * 1024 * 1024;

/// Something with more to send than fits into a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Output of a process.
    Process(ProcessNumber),
    /// How much input a process took.
    Credit(ProcessNumber),
    /// A file being read, by its request.
    Read(u32),
    /// A watch, by its request.
    Watch(u32),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) id: u64,
    /// Encoded answers and events.
    answers: RefCell<Vec<u8>>,
    ready: RefCell<VecDeque<Source>>,
    /// Told when there is something to send.
    wake: Notify,
    /// Told when answers were taken to be sent.
    room: Notify,
    /// Told when the connection must end.
    end: Notify,
    closed: Cell<bool>,
    pub(crate) reads: RefCell<BTreeMap<u32, Reading>>,
    pub(crate) writes: RefCell<BTreeMap<u32, Incoming>>,
    pub(crate) watches: RefCell<BTreeMap<u32, Rc<Watching>>>,
    /// Lists and removals under way.
    pub(crate) jobs: Cell<usize>,
}

impl Conn {
    fn new(id: u64) -> Rc<Self> {
        Rc::new(Self {
            id,
            answers: RefCell::default(),
            ready: RefCell::default(),
            wake: Notify::new(),
            room: Notify::new(),
            end: Notify::new(),
            closed: Cell::new(false),
            reads: RefCell::default(),
            writes: RefCell::default(),
            watches: RefCell::default(),
            jobs: Cell::new(0),
        })
    }

    /// Whether it ended; jobs for it stop.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Sends a message.
    pub(crate) fn say(&self, message: &Message) {
        if self.closed.get() {
            return;
        }
        let mut answers = self.answers.borrow_mut();
        // Every message is made from bounded parts, far below the longest frame.
        let fits = encode_json(message, &mut answers).is_ok();
        if !fits || answers.len() > ANSWERS_MOST {
            self.end.notify_one();
        }
        self.wake.notify_one();
    }

    /// Answers a request; 0 asked for no answer.
    pub(crate) fn answer(&self, id: u32, result: Result<Reply, GuestError>) {
        if id == 0 {
            return;
        }
        self.say(&match result {
            Ok(reply) => Message::Reply { id, reply },
            Err(mut error) => {
                cut(&mut error.message);
                Message::Failed { id, error }
            }
        });
    }

    /// Checks that a request's id is free for content or events that follow under it.
    pub(crate) fn check_free(&self, id: u32) -> Result<(), GuestError> {
        let taken = self.reads.borrow().contains_key(&id)
            || self.writes.borrow().contains_key(&id)
            || self.watches.borrow().contains_key(&id);
        if id == 0 || taken {
            let message = format!("request id {id} is taken");
            return Err(fail(GuestErrorCode::Invalid, message));
        }
        Ok(())
    }

    /// Puts a source on the list of those with something to send. The source notes that it is there.
    pub(crate) fn ready(&self, source: Source) {
        if !self.closed.get() {
            self.ready.borrow_mut().push_back(source);
            self.wake.notify_one();
        }
    }

    /// Waits until there is room for answers, or the connection ended.
    pub(crate) async fn wait_room(&self) {
        loop {
            let told = self.room.notified();
            if self.closed.get() || self.answers.borrow().len() <= ANSWERS_PAUSE {
                return;
            }
            told.await;
        }
    }

    fn close(&self, guest: &Guest) {
        self.closed.set(true);
        self.room.notify_waiters();
        self.reads.take();
        // Half-written files are removed as they are dropped.
        self.writes.take();
        for watching in self.watches.take().into_values() {
            watching.end();
        }
        for process in guest.table.borrow().all() {
            process.detach(self);
        }
        guest.conns.borrow_mut().remove(&self.id);
    }
}

/// Paths in messages may be long.
fn cut(message: &mut String) {
    const LONGEST: usize = 16 * 1024;
    if message.len() > LONGEST {
        let at = (0..=LONGEST)
            .rev()
            .find(|at| message.is_char_boundary(*at))
            .unwrap_or(0);
        message.truncate(at);
        message.push('…');
    }
}

/// Serves one connection until either side ends it.
pub(crate) async fn serve(guest: Rc<Guest>, stream: UnixStream, id: u64) {
    let conn = Conn::new(id);
    conn.say(&Message::Hello {
        protocol: handler_types::guest::PROTOCOL,
        version: guest.config.version.clone(),
        boot: guest.boot.clone(),
    });
    guest.conns.borrow_mut().insert(id, Rc::clone(&conn));
    let (from, to) = stream.into_split();
    tokio::select! {
        () = reader::read_requests(&guest, &conn, from) => {}
        () = writer::write_answers(&guest, &conn, to) => {}
        () = conn.end.notified() => {}
    }
    conn.close(&guest);
}

/// One file or folder job more than a connection may have.
pub(crate) fn too_many_jobs() -> GuestError {
    fail(GuestErrorCode::Limit, "too many file requests at once")
}
