//! The guest from its first step to its last.

use crate::config::GuestConfig;
use crate::guest::Guest;
use crate::process::tree;
use crate::{conn, forward, reaper, sys};
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpListener;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::Instant;

/// Most connections of the host at once; more are closed at once.
const MOST_CONNECTIONS: usize = 64;
/// Time programs get to end after `SIGTERM`.
const GRACE: Duration = Duration::from_secs(2);
/// Time the last messages get to be sent.
const FLUSH: Duration = Duration::from_millis(100);
/// Pause after a failed accept, and between looks at what still lives.
const PAUSE: Duration = Duration::from_millis(20);

/// Why the guest could not begin its work.
#[derive(Debug, thiserror::Error)]
enum StartFailure {
    /// It runs with other rights than it was told.
    #[error("the guest runs as {uid}:{gid}, not as it was told")]
    WrongUser { uid: u32, gid: u32 },
    /// The port of the way out.
    #[error("port {port} of the way out: {error}")]
    EgressPort { port: u16, error: io::Error },
    /// Anything else of the system.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Serves the guest protocol on `listener`, and the network on `device` (a TUN), until shut down, and gives the exit code of the process:
/// 0 after a shutdown, 1 when it could not begin (the reason is on standard error).
///
/// The calling process must have a single thread. It stays the parent of everything that runs in the
/// sandbox, and should exit with the code at once.
#[must_use]
pub fn serve(listener: UnixListener, device: Option<OwnedFd>, config: GuestConfig) -> i32 {
    match run(listener, device, config) {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(io::stderr(), "handler-guest: {error}");
            1
        }
    }
}

fn run(
    listener: UnixListener,
    device: Option<OwnedFd>,
    config: GuestConfig,
) -> Result<(), StartFailure> {
    let (uid, gid) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    if (uid, gid) != (config.uid, config.gid) {
        return Err(StartFailure::WrongUser { uid, gid });
    }
    sys::open_standard_descriptors();
    let signals = sys::signal_descriptor()?;
    // As PID 1 orphans come here anyway; in a container with another init they must as well.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(io::Error::from)?;
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    LocalSet::new().block_on(&runtime, async {
        let guest = Guest::new(config)?;
        if let Some(socket) = guest.config.egress_socket.clone() {
            let port = guest.config.egress_port;
            let inside = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
                .await
                .map_err(|error| StartFailure::EgressPort { port, error })?;
            spawn_local(forward::forward(inside, socket.clone()));
            if let Some(device) = device {
                let device = sys::waitable(device)?;
                let seed = u64::from_ne_bytes(sys::random()?);
                spawn_local(serve_network(device, socket, seed));
            }
        }
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let signals = sys::waitable(signals)?;
        spawn_local(reaper::watch_signals(Rc::clone(&guest), signals));
        spawn_local(accept(Rc::clone(&guest), listener));
        guest.stop.notified().await;
        stop(guest).await;
        Ok(())
    })
}

/// The network of programs that know no proxy. Should it end, they are without one; everything else goes on.
async fn serve_network(device: AsyncFd<OwnedFd>, socket: PathBuf, seed: u64) {
    if let Err(error) = handler_netstack::run(device, socket, seed).await {
        let _ = writeln!(io::stderr(), "handler-guest: network: {error}");
    }
}

async fn accept(guest: Rc<Guest>, listener: tokio::net::UnixListener) {
    let mut last = 0;
    loop {
        match listener.accept().await {
            Ok((stream, _)) if guest.conns.borrow().len() < MOST_CONNECTIONS => {
                last += 1;
                spawn_local(conn::serve(Rc::clone(&guest), stream, last));
            }
            Ok(_) => {}
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Ends everything: asks first, kills what does not listen.
async fn stop(guest: Rc<Guest>) {
    let supervisors = || guest.supervisors.borrow().clone();
    let programs = || {
        let mut all = tree::living(&[guest.own_pid], &Default::default());
        all.retain(|pid| !supervisors().contains(pid));
        all
    };
    for pid in programs() {
        let _ = tree::send(pid, libc::SIGTERM);
    }
    let deadline = Instant::now() + GRACE;
    while !programs().is_empty() && Instant::now() < deadline {
        tokio::time::sleep(PAUSE).await;
    }
    tree::kill_everything(Rc::clone(&guest)).await;
    tokio::time::sleep(FLUSH).await;
}
