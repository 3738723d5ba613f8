//! From requests to what they do.

use super::{Conn, too_many_jobs};
use crate::files::{self, list, read, remove, write};
use crate::guest::Guest;
use crate::process;
use crate::{fail, system};
use handler_types::guest::{
    GuestError, GuestErrorCode, Message, Op, ProcessKind, ProcessNumber, Reply, Request,
};
use std::rc::Rc;
use tokio::task::spawn_local;

/// Most lists and removals at once per connection.
const MOST_JOBS: usize = 16;
/// Bytes of encoded processes per reply, about.
const PAGE: usize = 256 * 1024;

/// Performs one request.
pub(super) fn perform(guest: &Rc<Guest>, conn: &Rc<Conn>, request: Request) {
    let Request { id, op } = request;
    match answer_of(guest, conn, id, op) {
        Ok(Some(reply)) => conn.answer(id, Ok(reply)),
        // It answers by itself.
        Ok(None) => {}
        Err(error) => conn.answer(id, Err(error)),
    }
}

type Answer = Result<Option<Reply>, GuestError>;

fn answer_of(guest: &Rc<Guest>, conn: &Rc<Conn>, id: u32, op: Op) -> Answer {
    let process = |number| guest.table.borrow().get(number);
    match op {
        Op::Start { spec } => return process::start(guest, conn, id, spec),
        Op::Attach {
            process: number,
            from,
        } => {
            let process = process(number)?;
            process.attach(conn, from)?;
            let process = process.info();
            return Ok(Some(Reply::Process { process }));
        }
        Op::Detach { process: number } => process(number)?.detach(conn),
        Op::Ack {
            process: number,
            up_to,
        } => process(number)?.ack(guest, up_to)?,
        Op::CloseStdin {
            process: number,
            at,
        } => process(number)?.close_input(at)?,
        Op::Signal {
            process: number,
            signal,
            tree,
        } => process(number)?.signal(guest, signal, tree)?,
        Op::Resize {
            process: number,
            cols,
            rows,
        } => process(number)?.resize(handler_types::guest::TtySize { cols, rows })?,
        Op::Processes => return Ok(Some(processes(guest, conn, id))),
        Op::Connect { port, key } => return process::connect(guest, conn, id, port, key),
        Op::Ports => {
            let ports = system::ports(guest);
            return Ok(Some(Reply::Ports { ports }));
        }
        Op::Table => return Ok(Some(table(guest, conn, id))),
        Op::Forget { process: number } => forget(guest, number)?,
        Op::Stats => {
            let stats = system::stats::collect(guest);
            return Ok(Some(Reply::Stats { stats }));
        }
        Op::Shutdown => guest.begin_stop(),
        other => return file_answer(conn, id, other),
    }
    Ok(Some(Reply::Done))
}

fn file_answer(conn: &Rc<Conn>, id: u32, op: Op) -> Answer {
    match op {
        Op::Stat { path } => {
            let entry = files::entry::stat(&path)?;
            return Ok(Some(Reply::Entry { entry }));
        }
        Op::List { path, depth } => {
            let listing = list::Listing::open(&path, depth)?;
            let job = Job::begin(conn)?;
            spawn_local(async move { list::send_pages(&job.0, id, listing).await });
            return Ok(None);
        }
        Op::Remove {
            path,
            recursive: true,
        } => {
            let removal = remove::Removal::open(&path)?;
            let job = Job::begin(conn)?;
            spawn_local(async move {
                let result = removal.run(&job.0).await;
                job.0.answer(id, result.map(|()| Reply::Done));
            });
            return Ok(None);
        }
        Op::Remove {
            path,
            recursive: false,
        } => remove::remove_one(&path)?,
        Op::Mkdir {
            path,
            parents,
            mode,
        } => files::folder::make(&path, parents, mode)?,
        Op::Move {
            from,
            to,
            overwrite,
        } => files::folder::rename(&from, &to, overwrite)?,
        Op::Chmod {
            path,
            mode,
            recursive: false,
        } => files::chmod::one(&path, mode)?,
        Op::Chmod {
            path,
            mode,
            recursive: true,
        } => {
            let change = files::chmod::Change::open(&path, mode)?;
            let job = Job::begin(conn)?;
            spawn_local(async move {
                let result = change.run(&job.0).await;
                job.0.answer(id, result.map(|()| Reply::Done));
            });
            return Ok(None);
        }
        Op::Read {
            path,
            offset,
            length,
        } => return read::begin(conn, id, &path, offset, length).map(Some),
        Op::Pack { path, hard_links } => {
            return read::begin_pack(conn, id, &path, hard_links).map(Some);
        }
        Op::Watch { path, recursive } => crate::watch::begin(conn, id, &path, recursive)?,
        Op::Unpack { path, limits } => {
            write::begin_unpack(conn, id, &path, limits)?;
            return Ok(None);
        }
        Op::Hash { path } => {
            let hash = files::hash::Hashing::open(&path)?;
            let job = Job::begin(conn)?;
            spawn_local(async move {
                let result = hash.run(&job.0).await;
                job.0.answer(id, result);
            });
            return Ok(None);
        }
        Op::Credit { request, bytes } => read::credit(conn, request, bytes)?,
        Op::CancelFile { request } => cancel(conn, request)?,
        Op::Write {
            path,
            mode,
            parents,
            create_only,
            sha256,
        } => {
            let wish = write::Wish {
                mode,
                parents,
                create_only,
                sha256,
            };
            write::begin(conn, id, &path, wish)?;
            return Ok(None);
        }
        // `answer_of` took all others.
        _ => return Err(fail(GuestErrorCode::Invalid, "unknown operation")),
    }
    Ok(Some(Reply::Done))
}

/// A long job for a connection; counted until it is dropped.
struct Job(Rc<Conn>);

impl Job {
    fn begin(conn: &Rc<Conn>) -> Result<Self, GuestError> {
        if conn.jobs.get() >= MOST_JOBS {
            return Err(too_many_jobs());
        }
        conn.jobs.set(conn.jobs.get() + 1);
        Ok(Self(Rc::clone(conn)))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.0.jobs.set(self.0.jobs.get().saturating_sub(1));
    }
}

/// Stops a read, a write or a watch; nothing more is sent for it.
fn cancel(conn: &Conn, request: u32) -> Result<(), GuestError> {
    let read = conn.reads.borrow_mut().remove(&request).is_some();
    let write = conn.writes.borrow_mut().remove(&request).is_some();
    let watch = conn.watches.borrow_mut().remove(&request);
    if let Some(watching) = &watch {
        watching.end();
    }
    if read || write || watch.is_some() {
        return Ok(());
    }
    let message = format!("no read, write or watch under way for request {request}");
    Err(fail(GuestErrorCode::NotFound, message))
}

fn forget(guest: &Guest, number: ProcessNumber) -> Result<(), GuestError> {
    let process = guest.table.borrow().get(number)?;
    if process.exit.get().is_none() && process.kind == ProcessKind::Command {
        return Err(fail(GuestErrorCode::Invalid, "the process still runs"));
    }
    guest.table.borrow_mut().remove(number);
    process.forget(guest);
    Ok(())
}

/// Sends all pages of the list but the last, which it gives.
fn processes(guest: &Guest, conn: &Conn, id: u32) -> Reply {
    let mut page = Vec::new();
    let mut size = 0;
    let table = guest.table.borrow();
    for process in table.all().filter(|process| process.running.get()) {
        let info = process.info();
        size += 300 + info.key.len() + info.tag.len();
        size += info
            .argv
            .iter()
            .map(|argument| argument.len() + 4)
            .sum::<usize>();
        page.push(info);
        // Escaping may make text six times as long and still fits into a frame.
        if size > PAGE / 2 {
            let processes = std::mem::take(&mut page);
            conn.answer(
                id,
                Ok(Reply::Processes {
                    processes,
                    more: true,
                }),
            );
            size = 0;
        }
    }
    Reply::Processes {
        processes: page,
        more: false,
    }
}

/// As [`processes`], with every process of the sandbox.
fn table(guest: &Guest, conn: &Conn, id: u32) -> Reply {
    let mut page = Vec::new();
    let mut size = 0;
    for process in system::table(guest) {
        size += 300
            + process
                .argv
                .iter()
                .map(|text| text.len() + 4)
                .sum::<usize>();
        page.push(process);
        if size > PAGE / 2 {
            let processes = std::mem::take(&mut page);
            let more = true;
            conn.answer(id, Ok(Reply::Table { processes, more }));
            size = 0;
        }
    }
    Reply::Table {
        processes: page,
        more: false,
    }
}

/// Gives input to a process.
pub(super) fn input(
    guest: &Guest,
    conn: &Rc<Conn>,
    number: ProcessNumber,
    offset: u64,
    data: &[u8],
) {
    let process = guest.table.borrow().get(number);
    match process {
        Ok(process) => process.take_input(conn, offset, data),
        Err(error) => conn.say(&Message::InputRefused {
            process: number,
            received: 0,
            error,
        }),
    }
}
