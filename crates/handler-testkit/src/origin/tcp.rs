//! A TCP origin: sends back what it is sent, and counts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// Most connections at a time; further ones wait.
const MAX_CONNECTIONS: usize = 256;

#[derive(Debug, Default)]
struct Counters {
    connections: AtomicU64,
    open: AtomicU64,
    bytes: AtomicU64,
}

/// A running echo server; it and its connections end when it is dropped.
#[derive(Debug)]
pub struct TcpOrigin {
    address: SocketAddr,
    counters: Arc<Counters>,
    task: JoinHandle<()>,
}

impl TcpOrigin {
    /// Starts one on a free loopback port.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let counters = Arc::new(Counters::default());
        let task =
            handler_base::tasks::spawn_named("tcp origin", accept(listener, counters.clone()));
        Ok(Self {
            address,
            counters,
            task,
        })
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Connections so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.counters.connections.load(Ordering::SeqCst)
    }

    /// Connections open now.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.counters.open.load(Ordering::SeqCst)
    }

    /// Bytes received so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.counters.bytes.load(Ordering::SeqCst)
    }
}

impl Drop for TcpOrigin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, counters: Arc<Counters>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        let Ok((stream, _)) = listener.accept().await else {
            return;
        };
        counters.connections.fetch_add(1, Ordering::SeqCst);
        counters.open.fetch_add(1, Ordering::SeqCst);
        connections.spawn(echo(stream, counters.clone()));
    }
}

async fn echo(mut stream: TcpStream, counters: Arc<Counters>) {
    let mut block = vec![0; 64 << 10];
    while let Ok(count) = stream.read(&mut block).await {
        counters.bytes.fetch_add(count as u64, Ordering::SeqCst);
        if count == 0 || stream.write_all(&block[..count]).await.is_err() {
            break;
        }
    }
    counters.open.fetch_sub(1, Ordering::SeqCst);
}
