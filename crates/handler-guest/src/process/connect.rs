//! Connections to TCP ports inside, numbered, read and written like commands.
//!
//! Invariant: a connection nobody is attached to is closed after a while, so that a host that went away
//! leaves none behind; each direction ends on its own.

use super::{Process, feed, output};
use crate::conn::Conn;
use crate::fail;
use crate::failure::from_io;
use crate::guest::Guest;
use crate::sys::{now_ms, waitable};
use handler_types::guest::{
    CONNECTION_GRACE_SECS, Exit, GuestError, GuestErrorCode, Message, ProcessKind, Reply, Stream,
};
use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::spawn_local;

/// Longest wait for a server that does not accept.
const PATIENCE: Duration = Duration::from_secs(5);
/// Looks at whether anyone is attached, within the grace.
const LOOKS: u32 = 6;
const _: () = assert!(CONNECTION_GRACE_SECS >= LOOKS as u64);

/// Connects; the answer comes when it is made.
pub(crate) fn connect(
    guest: &Rc<Guest>,
    conn: &Rc<Conn>,
    id: u32,
    port: u16,
    key: String,
) -> Result<Option<Reply>, GuestError> {
    if port == 0 {
        return Err(fail(GuestErrorCode::Invalid, "port 0"));
    }
    if key.len() > super::prepare::MAX_KEY {
        return Err(fail(GuestErrorCode::Invalid, "the key is too long"));
    }
    if let Some(process) = guest.table.borrow().by_key(&key) {
        let process = process.info();
        return Ok(Some(Reply::Started { process }));
    }
    // Fails early when no more processes can be known.
    let number = guest.table.borrow_mut().next_number()?;
    let (guest, conn) = (Rc::clone(guest), Rc::clone(conn));
    spawn_local(async move {
        let made = match dial(port).await {
            Ok(stream) => split(stream).map_err(|error| from_io("the connection", &error)),
            Err(error) => Err(refusal(port, &error)),
        };
        match made {
            Ok((from, to)) if !conn.is_closed() => {
                let process = Rc::new(new_process(number, port, key));
                guest.table.borrow_mut().insert(Rc::clone(&process));
                let info = process.info();
                spawn_local(live(guest, process, from, to));
                conn.answer(id, Ok(Reply::Started { process: info }));
            }
            Ok(_) => {}
            Err(error) => conn.answer(id, Err(error)),
        }
    });
    Ok(None)
}

async fn dial(port: u16) -> io::Result<TcpStream> {
    let attempt = async {
        let first: IpAddr = Ipv4Addr::LOCALHOST.into();
        match TcpStream::connect((first, port)).await {
            Ok(stream) => Ok(stream),
            Err(error) => TcpStream::connect((Ipv6Addr::LOCALHOST, port))
                .await
                // Where there is no IPv6 the first reason is the one that matters.
                .map_err(|_| error),
        }
    };
    tokio::time::timeout(PATIENCE, attempt)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn refusal(port: u16, error: &io::Error) -> GuestError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => fail(
            GuestErrorCode::NotFound,
            format!("nothing listens on port {port} of the sandbox's loopback"),
        ),
        io::ErrorKind::TimedOut => fail(
            GuestErrorCode::Limit,
            format!("the server on port {port} accepts no connections"),
        ),
        _ => from_io(&format!("port {port}"), error),
    }
}

type Halves = (AsyncFd<OwnedFd>, AsyncFd<OwnedFd>);

fn split(stream: TcpStream) -> io::Result<Halves> {
    stream.set_nodelay(true)?;
    let from = OwnedFd::from(stream.into_std()?);
    let to = from.try_clone()?;
    Ok((waitable(from)?, waitable(to)?))
}

fn new_process(number: u32, port: u16, key: String) -> Process {
    Process {
        number,
        kind: ProcessKind::Connection,
        supervisor: 0,
        key,
        tag: String::new(),
        argv: vec![format!("tcp/{port}")],
        started_ms: now_ms(),
        pid: Cell::new(0),
        running: Cell::new(true),
        starters: RefCell::default(),
        tty: Cell::new(None),
        master: RefCell::new(None),
        has_input: true,
        exit: Cell::new(None),
        exited: Notify::new(),
        timed_out: Cell::new(false),
        broken: Cell::new(false),
        orphan_status: Cell::new(None),
        orphan_reaped: Notify::new(),
        ring: RefCell::default(),
        open_outputs: Cell::new(1),
        room: Notify::new(),
        attached: RefCell::new(None),
        input: RefCell::default(),
        input_ready: Notify::new(),
        input_from: RefCell::default(),
        credit_queued: Cell::new(0),
        forgotten: Cell::new(false),
    }
}

/// A connection's whole life: both directions, and longer until the host has taken all of it.
async fn live(
    guest: Rc<Guest>,
    process: Rc<Process>,
    from: AsyncFd<OwnedFd>,
    to: AsyncFd<OwnedFd>,
) {
    let copied = async {
        tokio::join!(receive(&guest, &process, from), send(&process, to));
        end(&guest, &process);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = copied => {}
        () = process.wait_forgotten() => {}
        () = abandoned(&process) => {}
    }
    end(&guest, &process);
    guest.table.borrow_mut().remove(process.number);
    process.forget(&guest);
}

/// Reads what the server sends until it ends.
async fn receive(guest: &Guest, process: &Process, from: AsyncFd<OwnedFd>) {
    let mut buffer = Vec::new();
    output::collect(guest, process, Stream::Stdout, &from, &mut buffer).await;
    if process.broken.get() {
        // Told before the end of the output, so that nobody takes a cut for an end.
        end(guest, process);
    }
    process.open_outputs.set(0);
    process.output_changed();
}

/// Sends input to its end, then closes that direction.
async fn send(process: &Process, to: AsyncFd<OwnedFd>) {
    tokio::select! {
        biased;
        result = feed::write_all(process, &to) => if result.is_err() {
            process.broken.set(true);
        },
        () = process.wait_exit() => {}
    }
    // Nothing can be done when the server is gone already.
    let _ = rustix::net::shutdown(to.get_ref(), rustix::net::Shutdown::Write);
    process.input.borrow_mut().abandon();
    process.input_changed();
}

/// Notes the end once and tells everyone.
fn end(guest: &Guest, process: &Process) {
    if process.exit.get().is_some() {
        return;
    }
    let exit = Exit {
        code: i32::from(process.broken.get()),
        signal: None,
        timed_out: false,
    };
    process.exit.set(Some(exit));
    process.exited.notify_waiters();
    guest.broadcast(&Message::Exited {
        process: process.number,
        exit,
    });
    process.output_changed();
}

/// Returns when nobody was attached for the grace.
async fn abandoned(process: &Process) {
    let pause = Duration::from_secs(CONNECTION_GRACE_SECS / u64::from(LOOKS));
    let mut alone = 0;
    while alone < LOOKS {
        tokio::time::sleep(pause).await;
        alone = if process.attached.borrow().is_some() {
            0
        } else {
            alone + 1
        };
    }
}
