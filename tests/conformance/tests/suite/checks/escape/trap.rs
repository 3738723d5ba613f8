//! What listens on this machine and must never hear anything: one port, TCP and UDP, IPv4 and IPv6.

use anyhow::Context as _;
use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;

/// How long what was sent is waited for when all is said to be over.
const SETTLE: Duration = Duration::from_millis(300);
/// Bytes of a connection that are kept.
const KEPT: usize = 2048;

type Caught = Arc<Mutex<Vec<String>>>;

/// The trap; it is gone with this value.
pub(super) struct Trap {
    port: u16,
    caught: Caught,
    _tasks: JoinSet<()>,
}

impl Trap {
    /// Sets one on a free port.
    pub(super) async fn set() -> anyhow::Result<Self> {
        for _ in 0..20 {
            let tcp = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).await?;
            let port = tcp.local_addr()?.port();
            let Ok(udp) = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port)).await else {
                continue;
            };
            let caught = Caught::default();
            let mut tasks = JoinSet::new();
            tasks.spawn(connections(tcp, caught.clone()));
            tasks.spawn(datagrams(udp, caught.clone()));
            return Ok(Self {
                port,
                caught,
                _tasks: tasks,
            });
        }
        anyhow::bail!("no port is free for both")
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// What arrived.
    pub(super) async fn caught(&self) -> Vec<String> {
        tokio::time::sleep(SETTLE).await;
        let caught = self.caught.lock().unwrap_or_else(PoisonError::into_inner);
        caught.clone()
    }
}

fn note(caught: &Caught, what: String) {
    let mut caught = caught.lock().unwrap_or_else(PoisonError::into_inner);
    caught.push(what);
}

async fn connections(listener: TcpListener, caught: Caught) {
    let mut open = JoinSet::new();
    while let Ok((mut stream, from)) = listener.accept().await {
        let caught = caught.clone();
        note(&caught, format!("a connection from {from}"));
        open.spawn(async move {
            let mut bytes = vec![0; KEPT];
            if let Ok(count) = stream.read(&mut bytes).await {
                let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                note(&caught, format!("{from}: {text:?}"));
            }
        });
    }
}

async fn datagrams(socket: UdpSocket, caught: Caught) {
    let mut bytes = vec![0; KEPT];
    while let Ok((count, from)) = socket.recv_from(&mut bytes).await {
        let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
        note(&caught, format!("a datagram from {from}: {text:?}"));
    }
}

/// Whether a trap works at all: what is sent to it from outside arrives.
pub(super) async fn works() -> anyhow::Result<()> {
    let trap = Trap::set().await?;
    for address in ["127.0.0.1", "::1"] {
        let connected = tokio::net::TcpStream::connect((address, trap.port())).await;
        drop(connected.with_context(|| format!("connect to a trap by {address}"))?);
    }
    anyhow::ensure!(trap.caught().await.len() >= 2, "the trap catches nothing");
    Ok(())
}
