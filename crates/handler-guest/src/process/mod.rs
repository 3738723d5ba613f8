//! Commands: their start, output, input, signals and end.

mod connect;
mod feed;
mod fork;
pub(crate) mod input;
mod life;
mod output;
mod prepare;
pub(crate) mod ring;
mod shell;
mod start;
pub(crate) mod table;
pub(crate) mod tree;
mod user;

pub(crate) use connect::connect;
pub(crate) use start::start;

use crate::conn::{Conn, Source};
use crate::guest::Guest;
use crate::{fail, failure::from_errno};
use handler_types::guest::{
    Exit, GuestError, GuestErrorCode, Message, ProcessInfo, ProcessKind, ProcessNumber, TtySize,
};
use input::Input;
use ring::Ring;
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use tokio::sync::Notify;

/// Which connection gets a process's output, and how far it is.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) conn: Rc<Conn>,
    /// Next offset to send.
    pub(crate) cursor: u64,
    /// Whether the connection's writer has this process on its list.
    pub(crate) queued: bool,
    pub(crate) end_sent: bool,
}

/// One command or connection, from its start until it is forgotten.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) number: ProcessNumber,
    pub(crate) kind: ProcessKind,
    pub(crate) key: String,
    tag: String,
    argv: Vec<String>,
    started_ms: i64,
    supervisor: i32,
    pid: Cell<i32>,
    /// Whether it reached its program; before, nobody is told of it.
    pub(crate) running: Cell<bool>,
    /// Requests to answer when it does, or fails to.
    starters: RefCell<Vec<(Weak<Conn>, u32)>>,
    tty: Cell<Option<TtySize>>,
    /// Its terminal, until it ends.
    master: RefCell<Option<OwnedFd>>,
    has_input: bool,
    pub(crate) exit: Cell<Option<Exit>>,
    /// Told to everyone waiting when `exit` is set.
    exited: Notify,
    timed_out: Cell<bool>,
    /// A connection that was reset.
    broken: Cell<bool>,
    /// Wait status, when the supervisor is gone and the guest itself reaped the child.
    orphan_status: Cell<Option<i32>>,
    orphan_reaped: Notify,
    pub(crate) ring: RefCell<Ring>,
    /// Readers of output that have not come to their end.
    open_outputs: Cell<usize>,
    /// Told when output was acknowledged.
    room: Notify,
    pub(crate) attached: RefCell<Option<Attachment>>,
    pub(crate) input: RefCell<Input>,
    /// Told when input came, or its end.
    input_ready: Notify,
    /// Connection that sent input last: the one to tell about credit.
    input_from: RefCell<Weak<Conn>>,
    /// Connection that has this process's credit on its list; 0: none.
    pub(crate) credit_queued: Cell<u64>,
    /// No longer in the table; whoever still works for it stops.
    forgotten: Cell<bool>,
}

impl Process {
    /// What the host is told.
    pub(crate) fn info(&self) -> ProcessInfo {
        let ring = self.ring.borrow();
        ProcessInfo {
            process: self.number,
            kind: self.kind,
            pid: self.pid.get(),
            key: self.key.clone(),
            tag: self.tag.clone(),
            argv: self.argv.clone(),
            started_ms: self.started_ms,
            exit: self.exit.get(),
            tty: self.tty.get(),
            produced: ring.end(),
            acked: ring.acked(),
            received: self.input.borrow().taken(),
        }
    }

    /// Whether all output was read from it.
    pub(crate) fn output_complete(&self) -> bool {
        // A connection may still take input after its output ended.
        let is_over = self.exit.get().is_some() || self.kind == ProcessKind::Connection;
        is_over && self.open_outputs.get() == 0
    }

    /// Whether it ended and the host has everything.
    pub(crate) fn is_spent(&self) -> bool {
        self.exit.get().is_some() && self.output_complete() && self.ring.borrow().held() == 0
    }

    /// Room for output under the window of this moment, in bytes.
    fn room(&self, guest: &Guest) -> usize {
        let attached = self.attached.borrow().is_some();
        self.ring.borrow().room(guest.output_window(attached))
    }

    /// Waits for the end of the command itself.
    async fn wait_exit(&self) {
        loop {
            let told = self.exited.notified();
            if self.exit.get().is_some() {
                return;
            }
            told.await;
        }
    }

    /// Waits until the table has let go of it.
    async fn wait_forgotten(&self) {
        loop {
            let told = self.room.notified();
            if self.forgotten.get() {
                return;
            }
            told.await;
        }
    }

    /// Sends output to `conn` from `from` on, and to no other any more.
    pub(crate) fn attach(&self, conn: &Rc<Conn>, from: u64) -> Result<(), GuestError> {
        {
            let ring = self.ring.borrow();
            if from < ring.acked() || from > ring.end() {
                let message = format!(
                    "output from {from}: {} to {} is held",
                    ring.acked(),
                    ring.end()
                );
                return Err(fail(GuestErrorCode::Invalid, message));
            }
        }
        *self.attached.borrow_mut() = Some(Attachment {
            conn: Rc::clone(conn),
            cursor: from,
            queued: false,
            end_sent: false,
        });
        // An attached process has a wider window.
        self.room.notify_waiters();
        self.output_changed();
        Ok(())
    }

    /// Stops sending to `conn`.
    pub(crate) fn detach(&self, conn: &Conn) {
        let mut attached = self.attached.borrow_mut();
        if attached.as_ref().is_some_and(|to| to.conn.id == conn.id) {
            *attached = None;
        }
    }

    /// Puts the process on its connection's list, as there is something to send.
    pub(crate) fn output_changed(&self) {
        if let Some(to) = self.attached.borrow_mut().as_mut()
            && !to.queued
        {
            to.queued = true;
            to.conn.ready(Source::Process(self.number));
        }
    }

    /// Forgets output below `up_to`.
    pub(crate) fn ack(&self, guest: &Guest, up_to: u64) -> Result<(), GuestError> {
        let (before, known, after) = {
            let mut ring = self.ring.borrow_mut();
            (ring.held(), ring.ack(up_to), ring.held())
        };
        if !known {
            let message = format!("output up to {up_to} was never produced");
            return Err(fail(GuestErrorCode::Invalid, message));
        }
        guest.account(before, after);
        if let Some(to) = self.attached.borrow_mut().as_mut() {
            to.cursor = to.cursor.max(up_to);
        }
        self.room.notify_waiters();
        Ok(())
    }

    /// Drops what is held; the table has let go of it.
    pub(crate) fn forget(&self, guest: &Guest) {
        self.forgotten.set(true);
        *self.attached.borrow_mut() = None;
        let held = self.ring.take().held();
        guest.account(held, 0);
        self.room.notify_waiters();
    }

    /// Takes input from the host; tells `conn` when it was refused.
    pub(crate) fn take_input(&self, conn: &Rc<Conn>, offset: u64, data: &[u8]) {
        *self.input_from.borrow_mut() = Rc::downgrade(conn);
        let result = if self.has_input {
            self.input.borrow_mut().accept(offset, data)
        } else {
            Err(fail(
                GuestErrorCode::Invalid,
                "the process has no standard input",
            ))
        };
        match result {
            Ok(()) => {
                self.input_ready.notify_one();
                self.input_changed();
            }
            Err(error) => conn.say(&Message::InputRefused {
                process: self.number,
                received: self.input.borrow().taken(),
                error,
            }),
        }
    }

    /// Notes where the input ends.
    pub(crate) fn close_input(&self, at: u64) -> Result<(), GuestError> {
        if !self.has_input {
            let message = "the process has no standard input";
            return Err(fail(GuestErrorCode::Invalid, message));
        }
        self.input.borrow_mut().close_at(at)?;
        self.input_ready.notify_one();
        Ok(())
    }

    /// Has the host told how much input was taken.
    fn input_changed(&self) {
        if let Some(conn) = self.input_from.borrow().upgrade()
            && self.credit_queued.replace(conn.id) != conn.id
        {
            conn.ready(Source::Credit(self.number));
        }
    }

    /// Sets the terminal's size.
    pub(crate) fn resize(&self, size: TtySize) -> Result<(), GuestError> {
        prepare::check_size(size)?;
        let master = self.master.borrow();
        let Some(master) = master.as_ref() else {
            return Err(fail(
                GuestErrorCode::Invalid,
                "the process has no terminal, or ended",
            ));
        };
        prepare::set_size(master, size).map_err(|errno| from_errno("terminal size", errno))?;
        self.tty.set(Some(size));
        Ok(())
    }

    /// Sends a signal to the command, or to everything it started.
    pub(crate) fn signal(
        self: &Rc<Self>,
        guest: &Rc<Guest>,
        signal: i32,
        whole_tree: bool,
    ) -> Result<(), GuestError> {
        if !(1..=31).contains(&signal) {
            return Err(fail(
                GuestErrorCode::Invalid,
                format!("signal {signal} (1 to 31)"),
            ));
        }
        if self.kind == ProcessKind::Connection {
            return Err(fail(
                GuestErrorCode::Invalid,
                "a connection takes no signals",
            ));
        }
        if whole_tree {
            if signal == libc::SIGKILL {
                tokio::task::spawn_local(tree::kill_below(Rc::clone(guest), self.supervisor));
            } else {
                tree::signal_below(guest, self.supervisor, signal);
            }
            return Ok(());
        }
        let pid = self.pid.get();
        // The parent is asked so that a pid used again for another process is never hit.
        let is_ours = self.exit.get().is_none()
            && crate::procfs::one(pid)
                .is_some_and(|stat| stat.parent == self.supervisor || stat.parent == guest.own_pid);
        if !is_ours {
            return Err(fail(GuestErrorCode::NotFound, "the process has ended"));
        }
        tree::send(pid, signal).map_err(|errno| from_errno("signal", errno))
    }
}
