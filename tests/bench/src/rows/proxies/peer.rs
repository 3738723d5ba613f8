//! Proxies that people know, each a process of its own with settings of its own.

use super::way::Way;
use anyhow::{Context as _, ensure};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long one may take to listen: mitmproxy makes keys first.
const PATIENCE: Duration = Duration::from_secs(60);

/// A proxy that runs; killed when dropped.
#[derive(Debug)]
pub(super) struct Peer {
    name: &'static str,
    port: u16,
    child: Child,
}

impl Peer {
    /// tinyproxy, which only copies in tunnels.
    pub(super) fn tinyproxy(folder: &Path) -> anyhow::Result<Self> {
        let port = free_port()?;
        let settings = folder.join("tinyproxy.conf");
        std::fs::write(
            &settings,
            format!(
                "Port {port}\nListen 127.0.0.1\nTimeout 600\nMaxClients 4000\nLogLevel Critical\nLogFile \"/dev/null\"\n"
            ),
        )?;
        let mut command = Command::new("tinyproxy");
        command.arg("-d").arg("-c").arg(&settings);
        Self::start("tinyproxy", port, &mut command)
    }

    /// mitmproxy with a script that puts a value in a stand-in's place, and back again in what is streamed home.
    pub(super) fn mitmproxy(folder: &Path, phantom: &str, value: &str) -> anyhow::Result<Self> {
        let port = free_port()?;
        let script = folder.join("swap.py");
        std::fs::write(
            &script,
            format!(
                "P, V = {phantom:?}, {value:?}\n\
                 def requestheaders(flow):\n\
                 \x20   for name, text in list(flow.request.headers.items()):\n\
                 \x20       if P in text: flow.request.headers[name] = text.replace(P, V)\n\
                 def responseheaders(flow):\n\
                 \x20   flow.response.stream = lambda data: data.replace(V.encode(), P.encode())\n"
            ),
        )?;
        let mut command = Command::new("mitmdump");
        command
            .args([
                "--quiet",
                "--listen-host",
                "127.0.0.1",
                "--set",
                "flow_detail=0",
            ])
            .args(["--listen-port", &port.to_string()])
            .arg("--set")
            .arg(format!("confdir={}", folder.display()))
            .arg("--scripts")
            .arg(&script);
        Self::start("mitmproxy", port, &mut command)
    }

    fn start(name: &'static str, port: u16, command: &mut Command) -> anyhow::Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{name} is not installed"))?;
        let mut peer = Self { name, port, child };
        let end = Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(peer.child.try_wait()?.is_none(), "{name} has ended");
            ensure!(Instant::now() < end, "{name} does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(peer)
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The way through it to a port of this machine.
    pub(super) fn way(&self, port: u16) -> Way {
        Way::tcp(self.port, format!("127.0.0.1:{port}"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A port that was free a moment ago.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
