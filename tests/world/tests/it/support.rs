//! What the tests of this suite share: a world with a work folder, sandboxes in it, commands in those, raw HTTP.

use anyhow::Context as _;
pub(crate) use handler_testkit::inside::{LONG, Piece, Sandbox, show};
pub(crate) use handler_testkit::web::{Reply, http};
use handler_testkit::{World, skip};
use handler_types::api::FolderRequest;
use handler_types::network::{Enforcement, NetworkPolicy};
use std::path::PathBuf;

/// A world whose daemon runs and whose `work` folder agents may work in.
pub(crate) async fn world() -> anyhow::Result<World> {
    let world = World::start().await?;
    open_work(&world).await?;
    Ok(world)
}

/// Makes the `work` folder one that agents may work in.
pub(crate) async fn open_work(world: &World) -> anyhow::Result<()> {
    let path = text(world.work())?;
    world.client().add_folder(&FolderRequest { path }).await?;
    Ok(())
}

/// Makes a project folder in the work folder.
pub(crate) fn project(world: &World, name: &str) -> anyhow::Result<PathBuf> {
    let folder = world.work().join(name);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// The path as text.
pub(crate) fn text(path: impl Into<PathBuf>) -> anyhow::Result<String> {
    let path: PathBuf = path.into();
    path.into_os_string()
        .into_string()
        .map_err(|path| anyhow::anyhow!("{path:?} is not text"))
}

/// A policy that lets through what is listed.
pub(crate) fn filtered(entries: &[String]) -> anyhow::Result<NetworkPolicy> {
    let allow = entries
        .iter()
        .map(|entry| entry.parse())
        .collect::<Result<_, _>>()?;
    Ok(NetworkPolicy::Filtered {
        allow,
        enforcement: Enforcement::Enforce,
    })
}

/// How a sandbox reaches this machine's port.
pub(crate) fn alias(port: u16) -> String {
    format!("host.containers.internal:{port}")
}

/// See [`tunnel_to`].
const TUNNEL: &str = "import socket,sys\n\
    s=socket.create_connection(('127.0.0.1',3128))\n\
    s.sendall(b'CONNECT %H HTTP/1.1\\r\\nHost: %H\\r\\n\\r\\n')\n\
    head=b''\n\
    while b'\\r\\n\\r\\n' not in head: head+=s.recv(1)\n\
    assert b' 200 ' in head, head\n\
    s.sendall(b'ping'); assert s.recv(4)==b'ping'\n\
    print('open',flush=True)\n\
    try:\n  while s.recv(100): pass\n\
    except OSError: pass\n\
    print('closed',flush=True)\n";

/// A Python program that opens a tunnel, says so, and ends when it is closed.
pub(crate) fn tunnel_to(host: &str) -> String {
    TUNNEL.replace("%H", host)
}

/// A number of a process's `/proc/<pid>/status` given in kB, as bytes: `VmRSS`, `VmHWM`.
pub(crate) fn status_bytes(pid: u32, field: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|rest| rest.trim_start_matches(':').split_whitespace().next());
    Ok(number.context("no such field")?.parse::<u64>()? * 1024)
}

/// Whether the test may do what only root may.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether all tools are on this machine; else says so.
pub(crate) fn has_tools(test: &str, tools: &[&str]) -> bool {
    for tool in tools {
        let found = ["/usr/bin", "/bin"]
            .iter()
            .any(|folder| std::path::Path::new(folder).join(tool).exists());
        if !found {
            skip(test, &format!("there is no {tool} on this machine"));
            return false;
        }
    }
    true
}

/// Whether the long form was asked for.
pub(crate) fn is_soak() -> bool {
    std::env::var_os("HANDLER_SOAK").is_some_and(|value| value == "1")
}

/// Says something past the test harness's capture.
pub(crate) fn say(line: &str) {
    use std::io::Write as _;
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
