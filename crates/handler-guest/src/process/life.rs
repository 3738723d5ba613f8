//! The life of one command: reached its program, ran, ended.
//!
//! Invariant: every start is answered once, and every command that was told as started is told as
//! ended once, whatever happens to its supervisor.

use super::fork::{
    RECORD, REPORT_EXIT, REPORT_NO_FORK, REPORT_PID, STEP_FOLDER, STEP_TERMINAL, STEP_USER,
};
use super::{Process, output, tree};
use crate::guest::Guest;
use crate::{fail, failure::from_io};
use handler_types::guest::{Exit, GuestError, GuestErrorCode, Message, Reply};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// How long a lost command's status is waited for, after all that was left of it was killed.
const STATUS_PATIENCE: Duration = Duration::from_secs(2);
/// Exit told when nothing is known: killed.
const KILLED: Exit = Exit {
    code: 128 + libc::SIGKILL,
    signal: Some(libc::SIGKILL),
    timed_out: false,
};

/// Follows a process from its fork to its end. The time limit counts until the command itself ends;
/// what it leaves in the background is not touched then.
pub(super) async fn live(
    guest: Rc<Guest>,
    process: Rc<Process>,
    report: AsyncFd<OwnedFd>,
    failed: AsyncFd<OwnedFd>,
    timeout: Option<Duration>,
) {
    let reached = reach_program(&process, &report, &failed).await;
    drop(failed);
    if !tell_start(&guest, &process, reached) {
        return;
    }
    let ended = tokio::select! {
        biased;
        ended = read_end(&report) => ended,
        () = limit(timeout) => {
            process.timed_out.set(true);
            tree::kill_below(Rc::clone(&guest), process.supervisor).await;
            read_end(&report).await
        }
    };
    let mut exit = match ended {
        Some(status) => exit_of(status),
        None => lost(&process).await,
    };
    exit.timed_out = process.timed_out.get();
    process.exit.set(Some(exit));
    process.master.take();
    process.exited.notify_waiters();
    guest.broadcast(&Message::Exited {
        process: process.number,
        exit,
    });
    process.output_changed();
}

async fn reach_program(
    process: &Process,
    report: &AsyncFd<OwnedFd>,
    failed: &AsyncFd<OwnedFd>,
) -> Result<(), GuestError> {
    match read_record(report).await {
        Some((REPORT_PID, pid)) => process.pid.set(pid),
        Some((REPORT_NO_FORK, number)) => {
            let error = io::Error::from_raw_os_error(number);
            return Err(from_io("new process", &error));
        }
        _ => {
            let message = "the process's supervisor was killed";
            return Err(fail(GuestErrorCode::Io, message));
        }
    }
    let Some((step, number)) = read_record(failed).await else {
        return Ok(());
    };
    let error = io::Error::from_raw_os_error(number);
    let program = process.argv.first().map_or("", String::as_str);
    Err(match step {
        STEP_FOLDER => from_io("working folder", &error),
        STEP_TERMINAL => from_io("terminal", &error),
        STEP_USER => from_io("change of user", &error),
        _ if number == libc::ENOENT && std::path::Path::new(program).exists() => fail(
            GuestErrorCode::NotFound,
            format!("`{program}` is there, but its interpreter or loader is not"),
        ),
        _ => from_io(&format!("`{program}`"), &error),
    })
}

/// Answers everyone who asked for the start; whether the process runs.
fn tell_start(guest: &Guest, process: &Process, reached: Result<(), GuestError>) -> bool {
    let runs = reached.is_ok();
    process.running.set(runs);
    if !runs {
        guest.table.borrow_mut().remove(process.number);
        process.forget(guest);
    }
    let answer = reached.map(|()| Reply::Started {
        process: process.info(),
    });
    for (conn, id) in process.starters.take() {
        if let Some(conn) = conn.upgrade() {
            conn.answer(id, answer.clone());
        }
    }
    runs
}

async fn limit(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

/// The command's wait status; none when the supervisor is gone without a word.
async fn read_end(report: &AsyncFd<OwnedFd>) -> Option<i32> {
    match read_record(report).await {
        Some((REPORT_EXIT, status)) => Some(status),
        _ => None,
    }
}

/// Someone killed the supervisor: what was below it has come to the guest and is being killed there.
async fn lost(process: &Process) -> Exit {
    let status = async {
        loop {
            let told = process.orphan_reaped.notified();
            if let Some(status) = process.orphan_status.get() {
                return status;
            }
            told.await;
        }
    };
    tokio::time::timeout(STATUS_PATIENCE, status)
        .await
        .map_or(KILLED, exit_of)
}

impl Process {
    /// Notes that the guest itself reaped the command, as its supervisor was killed.
    pub(crate) fn reaped_as_orphan(&self, pid: i32, status: i32) {
        if self.pid.get() == pid && self.exit.get().is_none() {
            self.orphan_status.set(Some(status));
            self.orphan_reaped.notify_waiters();
        }
    }
}

fn exit_of(status: i32) -> Exit {
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        return Exit {
            code: 128 + signal,
            signal: Some(signal),
            timed_out: false,
        };
    }
    Exit {
        code: libc::WEXITSTATUS(status),
        signal: None,
        timed_out: false,
    }
}

/// One record of the fork's pipes; none when they ended before a whole one.
async fn read_record(fd: &AsyncFd<OwnedFd>) -> Option<(i32, i32)> {
    let mut record = [0u8; RECORD];
    let mut filled = 0;
    while filled < RECORD {
        match output::read(fd, &mut record[filled..]).await {
            Ok(count @ 1..) => filled += count,
            _ => return None,
        }
    }
    let (what, value) = record.split_at(4);
    Some((
        i32::from_ne_bytes(what.try_into().ok()?),
        i32::from_ne_bytes(value.try_into().ok()?),
    ))
}
