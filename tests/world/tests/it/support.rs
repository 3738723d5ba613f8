//! What the tests of this suite share: a world with a work folder, sandboxes in it, commands in those, raw HTTP.

use anyhow::{Context as _, ensure};
use handler_client::{Client, Socket, SocketMessage};
use handler_testkit::{World, eventually, skip};
use handler_types::api::{ExecRequest, ExecResult, FolderRequest, StreamCommand, StreamEvent};
use handler_types::guest::Exit;
use handler_types::network::{Enforcement, NetworkPolicy};
use handler_types::sandbox::{CreateSandbox, SandboxState};
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Whatever takes longer is stuck. Machines are slow and busy; the time is no assertion.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// A command inside that takes longer is stuck, milliseconds.
const COMMAND_MS: u64 = 60_000;

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

/// A sandbox and the client to use it with.
#[derive(Debug, Clone)]
pub(crate) struct Sandbox {
    pub(crate) client: Client,
    pub(crate) id: String,
}

impl Sandbox {
    /// Makes one.
    pub(crate) async fn up(world: &World, spec: &CreateSandbox) -> anyhow::Result<Self> {
        let client = world.client();
        let view = client.create_sandbox(spec).await?;
        ensure!(view.state == SandboxState::Running, "{view:?}");
        Ok(Self {
            client,
            id: view.id.to_string(),
        })
    }

    /// Makes one with nothing special: filtered, nothing allowed, no project folder.
    pub(crate) async fn plain(world: &World) -> anyhow::Result<Self> {
        Self::up(world, &CreateSandbox::default()).await
    }

    /// Runs a program to its end.
    pub(crate) async fn exec(&self, argv: &[&str]) -> anyhow::Result<ExecResult> {
        let request = ExecRequest {
            argv: argv.iter().map(|&part| part.to_owned()).collect(),
            timeout_ms: Some(COMMAND_MS),
            ..Default::default()
        };
        let result = self.client.exec(&self.id, &request).await;
        let result = result.with_context(|| format!("run {argv:?}"))?;
        ensure!(!result.exit.timed_out, "{argv:?} hung: {result:?}");
        Ok(result)
    }

    /// Runs a shell script to its end.
    pub(crate) async fn sh(&self, script: &str) -> anyhow::Result<ExecResult> {
        self.exec(&["/bin/sh", "-c", script]).await
    }

    /// Output of a script that must succeed, without the line end.
    pub(crate) async fn out(&self, script: &str) -> anyhow::Result<String> {
        let done = self.sh(script).await?;
        ensure!(done.exit.code == 0, "{script}: {done:?}");
        Ok(done.stdout.trim_end_matches('\n').to_owned())
    }

    /// A script that must not succeed.
    pub(crate) async fn fails(&self, script: &str) -> anyhow::Result<ExecResult> {
        let done = self.sh(script).await?;
        ensure!(done.exit.code != 0, "this worked: {script}: {done:?}");
        Ok(done)
    }

    /// Runs a Python program; the host's Python is seen inside.
    pub(crate) async fn python(&self, program: &str) -> anyhow::Result<ExecResult> {
        self.exec(&["/usr/bin/python3", "-c", program]).await
    }

    /// Starts a process that is kept.
    pub(crate) async fn start(&self, script: &str) -> anyhow::Result<u32> {
        let request = ExecRequest {
            argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            ..Default::default()
        };
        Ok(self.client.start_process(&self.id, &request).await?.process)
    }

    /// The stream of a process, from an offset or from the first byte still kept.
    pub(crate) async fn attach(&self, process: u32, from: Option<u64>) -> anyhow::Result<Feed> {
        let from = from.map_or_else(String::new, |from| format!("?from={from}"));
        let path = format!("/v1/sandboxes/{}/processes/{process}/attach{from}", self.id);
        let mut socket = self.client.socket(&path, "process.v1").await?;
        match socket.next().await {
            SocketMessage::Text(first) => match serde_json::from_str(&first)? {
                StreamEvent::Attached { offset, .. } => Ok(Feed { socket, offset }),
                other => anyhow::bail!("first came {other:?}"),
            },
            other => anyhow::bail!("first came {other:?}"),
        }
    }

    /// Output bytes of a process so far, and how it ended.
    pub(crate) async fn progress(&self, process: u32) -> anyhow::Result<(u64, Option<Exit>)> {
        let all = self.client.processes(&self.id).await?;
        let found = all.iter().find(|view| view.process == process);
        let view = found.with_context(|| format!("process {process} is not listed"))?;
        Ok((view.output_bytes, view.exit))
    }

    /// Waits until a process has ended.
    pub(crate) async fn ended(&self, process: u32) -> anyhow::Result<Exit> {
        eventually("the end of a process", LONG, || async {
            self.progress(process).await.ok()?.1
        })
        .await
    }
}

/// One piece of a process's stream.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Output of a stream (1 stdout, 2 stderr, 3 terminal).
    Output(u8, bytes::Bytes),
    /// All output was sent.
    Exited(Exit),
    /// It ended for another reason.
    Closed(String),
}

/// The stream of a process.
pub(crate) struct Feed {
    pub(crate) socket: Socket,
    /// Offset of the next byte.
    pub(crate) offset: u64,
}

impl Feed {
    /// The next piece.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Piece> {
        let message = tokio::time::timeout(LONG, self.socket.next()).await;
        match message.context("nothing comes")? {
            SocketMessage::Binary(bytes) => {
                ensure!(!bytes.is_empty(), "an empty frame");
                self.offset += bytes.len() as u64 - 1;
                Ok(Piece::Output(bytes[0], bytes.slice(1..)))
            }
            SocketMessage::Text(text) => match serde_json::from_str(&text)? {
                StreamEvent::Exited { exit } => Ok(Piece::Exited(exit)),
                StreamEvent::Closed { reason, .. } => Ok(Piece::Closed(reason)),
                StreamEvent::Attached { .. } => anyhow::bail!("attached twice"),
            },
            SocketMessage::Closed { code, reason } => Ok(Piece::Closed(format!("{code} {reason}"))),
        }
    }

    /// Everything to the end.
    pub(crate) async fn rest(&mut self) -> anyhow::Result<(Vec<u8>, Exit)> {
        let mut all = Vec::new();
        loop {
            match self.next().await? {
                Piece::Output(_, bytes) => all.extend_from_slice(&bytes),
                Piece::Exited(exit) => return Ok((all, exit)),
                Piece::Closed(reason) => anyhow::bail!("closed early: {reason}"),
            }
        }
    }

    /// Output until it contains `wanted`.
    pub(crate) async fn until(&mut self, wanted: &str) -> anyhow::Result<String> {
        let mut all = Vec::new();
        loop {
            match self.next().await? {
                Piece::Output(_, bytes) => all.extend_from_slice(&bytes),
                other => anyhow::bail!("{wanted} did not come before {other:?}: {}", show(&all)),
            }
            let so_far = show(&all);
            if so_far.contains(wanted) {
                return Ok(so_far);
            }
        }
    }

    /// Types.
    pub(crate) async fn type_in(&mut self, keys: &str) -> anyhow::Result<()> {
        let bytes = bytes::Bytes::copy_from_slice(keys.as_bytes());
        Ok(self.socket.send_binary(bytes).await?)
    }

    /// Sends a command.
    pub(crate) async fn send(&mut self, command: &StreamCommand) -> anyhow::Result<()> {
        Ok(self
            .socket
            .send_text(serde_json::to_string(command)?)
            .await?)
    }
}

/// Bytes for a message.
pub(crate) fn show(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
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

/// An answer to a request made by hand.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Status line and headers, lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Sends a request written by hand to the loopback port: first the request line, then its headers.
pub(crate) async fn http(port: u16, head: &[&str], body: &str) -> anyhow::Result<Reply> {
    let exchange = async {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
        let length = format!("Content-Length: {}", body.len());
        let lines = [head, &["Connection: close", &length, "", body]].concat();
        stream.write_all(lines.join("\r\n").as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer = tokio::time::timeout(LONG, exchange).await??;
    let answer = show(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok(Reply {
        status,
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    })
}
