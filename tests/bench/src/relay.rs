//! The peer of the filter's tunnels: a relay of its own process that copies and does nothing else, on
//! a runtime like the filter's.

use anyhow::Context as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::net::{TcpStream, UnixListener};

/// Bytes copied at a time, as the filter's tunnels.
const CHUNK: usize = 64 * 1024;

/// Is the relay: from a Unix socket to a loopback port, until killed.
pub(crate) fn run(listen: &str, to: &str) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(serve(Path::new(listen), to))
}

async fn serve(listen: &Path, to: &str) -> anyhow::Result<()> {
    let listener = UnixListener::bind(listen)?;
    loop {
        let (mut client, _) = listener.accept().await?;
        let to = to.to_owned();
        handler_base::tasks::spawn_named("relay", async move {
            let Ok(mut server) = TcpStream::connect(&to).await else {
                return;
            };
            server.set_nodelay(true).ok();
            // How it ends does not matter: what was to come is counted by the client.
            let copied =
                tokio::io::copy_bidirectional_with_sizes(&mut client, &mut server, CHUNK, CHUNK);
            copied.await.ok();
        });
    }
}

/// A relay process, killed when dropped.
#[derive(Debug)]
pub(crate) struct Relay(Child);

impl Relay {
    /// Starts one and waits until it listens.
    pub(crate) fn start(listen: &Path, to: &str) -> anyhow::Result<Self> {
        let child = Command::new(std::env::current_exe()?)
            .arg("relay")
            .arg(listen)
            .arg(to)
            .stdin(Stdio::null())
            .spawn()
            .context("start the relay")?;
        let relay = Self(child);
        let end = Instant::now() + Duration::from_secs(20);
        while std::os::unix::net::UnixStream::connect(listen).is_err() {
            anyhow::ensure!(Instant::now() < end, "the relay does not listen");
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(relay)
    }
}

impl Relay {
    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::{Origin, Wire};
    use std::os::unix::net::UnixStream;

    #[tokio::test]
    async fn it_copies_both_ways() {
        let folder = tempfile::tempdir().expect("folder");
        let socket = folder.path().join("r.sock");
        let origin = Origin::start().expect("origin");
        let (path, to) = (socket.clone(), origin.address());
        handler_base::tasks::spawn_named("relay under test", async move {
            serve(&path, &to).await.expect("relay");
        });
        tokio::task::spawn_blocking(move || {
            let end = Instant::now() + Duration::from_secs(20);
            let stream = loop {
                match UnixStream::connect(&socket) {
                    Ok(stream) => break stream,
                    Err(error) => assert!(Instant::now() < end, "{error}"),
                }
            };
            let mut wire = Wire::new(stream);
            assert_eq!(wire.echo(3).expect("echo").len(), 3);
            let socket = UnixStream::connect(&socket).expect("second");
            assert!(Wire::new(socket).download(1 << 20).expect("download") > 0.0);
        })
        .await
        .expect("client");
    }
}
