//! Inside a sandbox of a world: commands, their streams, their ends.

use crate::wait::eventually;
use crate::world::World;
use anyhow::{Context as _, ensure};
use handler_client::{Client, Socket, SocketMessage};
use handler_types::api::{ExecRequest, ExecResult, StreamCommand, StreamEvent};
use handler_types::guest::Exit;
use handler_types::sandbox::{CreateSandbox, SandboxState};
use std::time::Duration;

/// Whatever takes longer is stuck. Machines are slow and busy; the time is no assertion.
pub const LONG: Duration = Duration::from_secs(120);

/// A command inside that takes longer is stuck, milliseconds.
const COMMAND_MS: u64 = 60_000;

/// A sandbox and the client to use it with.
#[derive(Debug, Clone)]
pub struct Sandbox {
    /// Speaks to the daemon.
    pub client: Client,
    /// Its id.
    pub id: String,
}

impl Sandbox {
    /// Makes one.
    ///
    /// # Errors
    /// When the daemon refuses, the connection breaks, or what is said above is not so.
    pub async fn up(world: &World, spec: &CreateSandbox) -> anyhow::Result<Self> {
        let client = world.client();
        let view = client.create_sandbox(spec).await?;
        ensure!(view.state == SandboxState::Running, "{view:?}");
        Ok(Self {
            client,
            id: view.id.to_string(),
        })
    }

    /// Makes one with nothing special: filtered, nothing allowed, no project folder.
    ///
    /// # Errors
    /// When the daemon refuses, the connection breaks, or what is said above is not so.
    pub async fn plain(world: &World) -> anyhow::Result<Self> {
        Self::up(world, &CreateSandbox::default()).await
    }

    /// Runs a program to its end.
    ///
    /// # Errors
    /// When the daemon refuses, the connection breaks, or what is said above is not so.
    pub async fn exec(&self, argv: &[&str]) -> anyhow::Result<ExecResult> {
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
    ///
    /// # Errors
    /// When the daemon refuses, the connection breaks, or what is said above is not so.
    pub async fn sh(&self, script: &str) -> anyhow::Result<ExecResult> {
        self.exec(&["/bin/sh", "-c", script]).await
    }

    /// Output of a script that must succeed, without the line end.
    ///
    /// # Errors
    /// When the daemon refuses, the connection breaks, or what is said above is not so.
    pub async fn out(&self, script: &str) -> anyhow::Result<String> {
        let done = self.sh(script).await?;
        ensure!(done.exit.code == 0, "{script}: {done:?}");
        Ok(done.stdout.trim_end_matches('\n').to_owned())
    }

    /// A script that must not succeed.
    ///
    /// # Errors
    /// When the daemon refuses, the connection breaks, or what is said above is not so.
    pub async fn fails(&self, script: &str) -> anyhow::Result<ExecResult> {
        let done = self.sh(script).await?;
        ensure!(done.exit.code != 0, "this worked: {script}: {done:?}");
        Ok(done)
    }

    /// Runs a Python program; the host's Python is seen inside.
    ///
    /// # Errors
    /// When the daemon refuses, the connection breaks, or what is said above is not so.
    pub async fn python(&self, program: &str) -> anyhow::Result<ExecResult> {
        self.exec(&["/usr/bin/python3", "-c", program]).await
    }

    /// Starts a process that is kept.
    ///
    /// # Errors
    /// When the daemon refuses, the connection breaks, or what is said above is not so.
    pub async fn start(&self, script: &str) -> anyhow::Result<u32> {
        let request = ExecRequest {
            argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            ..Default::default()
        };
        Ok(self.client.start_process(&self.id, &request).await?.process)
    }

    /// The stream of a process, from an offset or from the first byte still kept.
    ///
    /// # Errors
    /// When the daemon refuses, the connection breaks, or what is said above is not so.
    pub async fn attach(&self, process: u32, from: Option<u64>) -> anyhow::Result<Feed> {
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
    ///
    /// # Errors
    /// When the daemon refuses, the connection breaks, or what is said above is not so.
    pub async fn progress(&self, process: u32) -> anyhow::Result<(u64, Option<Exit>)> {
        let all = self.client.processes(&self.id).await?;
        let found = all.iter().find(|view| view.process == process);
        let view = found.with_context(|| format!("process {process} is not listed"))?;
        Ok((view.output_bytes, view.exit))
    }

    /// Waits until a process has ended.
    ///
    /// # Errors
    /// When the daemon refuses, the connection breaks, or what is said above is not so.
    pub async fn ended(&self, process: u32) -> anyhow::Result<Exit> {
        eventually("the end of a process", LONG, || async {
            self.progress(process).await.ok()?.1
        })
        .await
    }
}

/// One piece of a process's stream.
#[derive(Debug)]
pub enum Piece {
    /// Output of a stream (1 stdout, 2 stderr, 3 terminal).
    Output(u8, bytes::Bytes),
    /// All output was sent.
    Exited(Exit),
    /// It ended for another reason.
    Closed(String),
}

/// The stream of a process.
#[expect(missing_debug_implementations, reason = "a connection")]
pub struct Feed {
    /// The connection.
    pub socket: Socket,
    /// Offset of the next byte.
    pub offset: u64,
}

impl Feed {
    /// The next piece.
    ///
    /// # Errors
    /// When the daemon refuses, the connection breaks, or what is said above is not so.
    pub async fn next(&mut self) -> anyhow::Result<Piece> {
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
    ///
    /// # Errors
    /// When the daemon refuses, the connection breaks, or what is said above is not so.
    pub async fn rest(&mut self) -> anyhow::Result<(Vec<u8>, Exit)> {
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
    ///
    /// # Errors
    /// When the daemon refuses, the connection breaks, or what is said above is not so.
    pub async fn until(&mut self, wanted: &str) -> anyhow::Result<String> {
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
    ///
    /// # Errors
    /// When the daemon refuses, the connection breaks, or what is said above is not so.
    pub async fn type_in(&mut self, keys: &str) -> anyhow::Result<()> {
        let bytes = bytes::Bytes::copy_from_slice(keys.as_bytes());
        Ok(self.socket.send_binary(bytes).await?)
    }

    /// Sends a command.
    ///
    /// # Errors
    /// When the daemon refuses, the connection breaks, or what is said above is not so.
    pub async fn send(&mut self, command: &StreamCommand) -> anyhow::Result<()> {
        Ok(self
            .socket
            .send_text(serde_json::to_string(command)?)
            .await?)
    }
}

/// Bytes for a message.
#[must_use]
pub fn show(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
