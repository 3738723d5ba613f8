//! Starting a command.

use super::{Process, feed, fork, life, output, prepare};
use crate::conn::Conn;
use crate::guest::Guest;
use crate::sys::waitable;
use crate::{fail, failure::from_errno, failure::from_io};
use handler_types::guest::{GuestError, GuestErrorCode, ProcessKind, ProcessSpec, Reply, Stream};
use rustix::pipe::{PipeFlags, pipe_with};
use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::spawn_local;

/// Most bytes of arguments kept for [`handler_types::guest::ProcessInfo`].
const KEPT_ARGUMENTS: usize = 8 * 1024;

/// The guest's ends, registered for waiting before anything is forked.
struct Registered {
    input: Option<AsyncFd<OwnedFd>>,
    outputs: Vec<(Stream, AsyncFd<OwnedFd>)>,
    report: AsyncFd<OwnedFd>,
    failed: AsyncFd<OwnedFd>,
}

/// Starts a process or finds it by its key. `None`: the answer comes once the program is reached.
pub(crate) fn start(
    guest: &Rc<Guest>,
    conn: &Rc<Conn>,
    id: u32,
    mut spec: ProcessSpec,
) -> Result<Option<Reply>, GuestError> {
    prepare::check(&spec)?;
    let known = guest.table.borrow().by_key(&spec.key);
    if let Some(process) = known {
        if process.running.get() {
            let process = process.info();
            return Ok(Some(Reply::Started { process }));
        }
        let starter = (Rc::downgrade(conn), id);
        process.starters.borrow_mut().push(starter);
        return Ok(None);
    }
    if guest.stopping.get() {
        return Err(fail(GuestErrorCode::Limit, "the sandbox is shutting down"));
    }
    let number = guest.table.borrow_mut().next_number()?;
    let (prepared, ends) =
        prepare::prepare(&mut spec, &guest.config, &guest.env, guest.open_files)?;
    let no_pipes = |errno| from_errno("pipes of the process", errno);
    let (report, tell_report) = pipe_with(PipeFlags::CLOEXEC).map_err(no_pipes)?;
    let (failed, tell_failed) = pipe_with(PipeFlags::CLOEXEC).map_err(no_pipes)?;
    let has_input = ends.input.is_some();
    let registered = register(ends.input, ends.outputs, report, failed)
        .map_err(|error| from_io("pipes of the process", &error))?;
    let supervisor = fork::fork_supervised(&prepared, tell_report.as_fd(), tell_failed.as_fd())
        .map_err(|error| from_io("new process", &error))?;
    // The ends of streams are only seen when no copy is left here.
    drop((prepared, tell_report, tell_failed));
    guest.supervisors.borrow_mut().insert(supervisor);

    let timeout = spec.timeout_ms.map(Duration::from_millis);
    let process = Rc::new(Process {
        number,
        kind: ProcessKind::Command,
        supervisor,
        key: spec.key,
        tag: spec.tag,
        argv: kept_arguments(spec.argv),
        started_ms: crate::sys::now_ms(),
        pid: Cell::new(0),
        running: Cell::new(false),
        starters: RefCell::new(vec![(Rc::downgrade(conn), id)]),
        tty: Cell::new(spec.tty),
        master: RefCell::new(ends.master),
        has_input,
        exit: Cell::new(None),
        exited: Notify::new(),
        timed_out: Cell::new(false),
        broken: Cell::new(false),
        orphan_status: Cell::new(None),
        orphan_reaped: Notify::new(),
        ring: RefCell::default(),
        open_outputs: Cell::new(registered.outputs.len()),
        room: Notify::new(),
        attached: RefCell::new(None),
        input: RefCell::default(),
        input_ready: Notify::new(),
        input_from: RefCell::default(),
        credit_queued: Cell::new(0),
        forgotten: Cell::new(false),
    });
    guest.table.borrow_mut().insert(Rc::clone(&process));
    run(guest, process, registered, timeout);
    Ok(None)
}

/// Sets the tasks of a process going.
fn run(guest: &Rc<Guest>, process: Rc<Process>, registered: Registered, timeout: Option<Duration>) {
    for (stream, fd) in registered.outputs {
        let (guest, process) = (Rc::clone(guest), Rc::clone(&process));
        spawn_local(output::read_stream(guest, process, stream, fd));
    }
    if let Some(fd) = registered.input {
        spawn_local(feed::feed(Rc::clone(&process), fd));
    }
    spawn_local(life::live(
        Rc::clone(guest),
        process,
        registered.report,
        registered.failed,
        timeout,
    ));
}

fn register(
    input: Option<OwnedFd>,
    outputs: Vec<(Stream, OwnedFd)>,
    report: OwnedFd,
    failed: OwnedFd,
) -> std::io::Result<Registered> {
    Ok(Registered {
        input: input.map(waitable).transpose()?,
        outputs: outputs
            .into_iter()
            .map(|(stream, fd)| Ok((stream, waitable(fd)?)))
            .collect::<std::io::Result<_>>()?,
        report: waitable(report)?,
        failed: waitable(failed)?,
    })
}

/// Cuts arguments, which may be a megabyte, to what a list of processes can carry.
fn kept_arguments(argv: Vec<String>) -> Vec<String> {
    let mut left = KEPT_ARGUMENTS;
    let mut kept = Vec::new();
    for mut argument in argv {
        if argument.len() >= left {
            let cut = (0..=left)
                .rev()
                .find(|at| argument.is_char_boundary(*at))
                .unwrap_or(0);
            argument.truncate(cut);
            argument.push('…');
            kept.push(argument);
            break;
        }
        // A few bytes each, so that empty ones count too.
        left = left.saturating_sub(argument.len() + 4);
        kept.push(argument);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_arguments_are_cut_between_characters() {
        let kept = kept_arguments(vec![
            "x".to_owned(),
            "ä".repeat(KEPT_ARGUMENTS),
            "y".to_owned(),
        ]);
        assert_eq!(kept.len(), 2);
        assert!(kept[1].len() <= KEPT_ARGUMENTS + 3);
        assert!(kept[1].ends_with("ä…"));
        assert!(kept_arguments(vec![String::new(); 100_000]).len() < 3000);
    }
}
