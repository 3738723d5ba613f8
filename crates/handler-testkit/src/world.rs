//! A real daemon in a scratch home: started, killed, started again, spoken to by command line and client.
//!
//! Invariant: at most one daemon process is alive in a world, and none after it is dropped.

mod builder;
mod commands;
mod tty;
mod user;

pub use builder::WorldBuilder;
pub use tty::Tty;
pub use user::User;

use crate::census::{Census, Leftover, Member};
use crate::scratch::Scratch;
use crate::sweep::sweep;
use anyhow::{Context as _, bail};
use handler_base::http::Endpoint;
use handler_client::Client;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a daemon may take until it answers. Machines are slow and busy; the time is no assertion.
const START_WITHIN: Duration = Duration::from_secs(60);

/// How long it may take to end when asked.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// A daemon in a scratch home.
#[derive(Debug)]
pub struct World {
    scratch: Scratch,
    program: PathBuf,
    env: BTreeMap<OsString, OsString>,
    flags: Vec<OsString>,
    user: Option<User>,
    daemon: Option<Child>,
    census: Mutex<Census>,
}

impl World {
    /// The `handler` program: `HANDLER_BIN`, or the one built beside the running test.
    #[must_use]
    pub fn program() -> Option<PathBuf> {
        if let Some(given) = std::env::var_os("HANDLER_BIN") {
            return Some(given.into());
        }
        let test = std::env::current_exe().ok()?;
        test.ancestors()
            .skip(1)
            .take(3)
            .map(|folder| folder.join("handler"))
            .find(|program| program.is_file())
    }

    /// How to make one.
    #[must_use]
    pub fn builder() -> WorldBuilder {
        WorldBuilder::default()
    }

    /// A world with a daemon that answers.
    ///
    /// # Errors
    /// As [`WorldBuilder::start`].
    pub async fn start() -> anyhow::Result<Self> {
        Self::builder().start().await
    }

    /// Its folders.
    #[must_use]
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// A folder to work in; sandboxes may be given it.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.scratch.folder("work")
    }

    /// The daemon's process id, while it runs.
    #[must_use]
    pub fn daemon_pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(Child::id)
    }

    /// Starts the daemon and waits until it answers.
    ///
    /// # Errors
    /// When one runs already, it cannot be started, it ends, or does not answer in time; with the end of its output.
    pub async fn start_daemon(&mut self) -> anyhow::Result<()> {
        if self.daemon.is_some() {
            bail!("the daemon runs already");
        }
        // The files of an earlier daemon must not be taken for the new one's.
        std::fs::remove_file(self.scratch.port_file()).ok();
        let output = File::options()
            .create(true)
            .append(true)
            .open(self.scratch.daemon_output())?;
        let mut command = self.command();
        command
            .args(["serve", "--port", "0"])
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let child = command
            .spawn()
            .with_context(|| format!("start {}", self.program.display()))?;
        let pid = child.id();
        self.daemon = Some(child);
        let end = Instant::now() + START_WITHIN;
        loop {
            if let Some(status) = self.reap()? {
                bail!("the daemon ended ({status})\n{}", self.daemon_tail());
            }
            if self.answers(pid).await {
                return Ok(());
            }
            if Instant::now() >= end {
                bail!("the daemon does not answer\n{}", self.daemon_tail());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn answers(&self, pid: u32) -> bool {
        if self.port().is_err() {
            return false;
        }
        match tokio::time::timeout(Duration::from_secs(5), self.client().health()).await {
            Ok(Ok(health)) => health.pid == pid,
            _ => false,
        }
    }

    /// Ends the daemon with SIGKILL, at whatever it does; nothing else is touched.
    ///
    /// # Errors
    /// When none runs.
    pub fn kill9(&mut self) -> anyhow::Result<()> {
        self.note();
        let mut daemon = self.daemon.take().context("no daemon runs")?;
        daemon.kill()?;
        daemon.wait()?;
        Ok(())
    }

    /// Asks the daemon to end and waits for it.
    ///
    /// # Errors
    /// When none runs, or it does not end in time (it is killed then).
    pub async fn stop_daemon(&mut self) -> anyhow::Result<ExitStatus> {
        self.note();
        let pid = self.daemon_pid().context("no daemon runs")?;
        let pid = Pid::from_raw(pid.cast_signed()).context("a process id")?;
        kill_process(pid, Signal::TERM)?;
        let end = Instant::now() + STOP_WITHIN;
        loop {
            if let Some(status) = self.reap()? {
                return Ok(status);
            }
            if Instant::now() >= end {
                self.kill9()?;
                bail!("the daemon did not end when asked\n{}", self.daemon_tail());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Ends the daemon, if it runs, and starts it again on the same folders.
    ///
    /// # Errors
    /// As [`World::stop_daemon`] and [`World::start_daemon`].
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        if self.reap()?.is_none() && self.daemon.is_some() {
            self.stop_daemon().await?;
        }
        self.start_daemon().await
    }

    /// The status of a daemon that ended by itself; it is forgotten then.
    fn reap(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        let Some(daemon) = self.daemon.as_mut() else {
            return Ok(None);
        };
        let status = daemon.try_wait()?;
        if status.is_some() {
            self.daemon = None;
        }
        Ok(status)
    }

    /// A client on the Unix socket.
    #[must_use]
    pub fn client(&self) -> Client {
        let token = self.token().unwrap_or_default();
        Client::new(Endpoint::Unix(self.scratch.socket()), token)
    }

    /// A client on the loopback port.
    ///
    /// # Errors
    /// When the daemon has not written its port.
    pub fn tcp_client(&self) -> anyhow::Result<Client> {
        let address = format!("127.0.0.1:{}", self.port()?);
        Ok(Client::new(Endpoint::Tcp(address), self.token()?))
    }

    /// The bearer token.
    ///
    /// # Errors
    /// When the daemon has not made one.
    pub fn token(&self) -> anyhow::Result<String> {
        read_trimmed(&self.scratch.token_file())
    }

    /// The loopback port.
    ///
    /// # Errors
    /// When the daemon has not written it.
    pub fn port(&self) -> anyhow::Result<u16> {
        let text = read_trimmed(&self.scratch.port_file())?;
        text.parse().context("the port file")
    }

    /// All live processes of this world.
    #[must_use]
    pub fn processes(&self) -> Vec<Member> {
        self.census().members()
    }

    /// What exists besides the daemon and the filter: processes, mounts, cgroups, sandboxes' folders.
    #[must_use]
    pub fn leftovers(&self) -> Vec<Leftover> {
        let daemon = self.daemon_pid().map(u32::cast_signed);
        let mut census = self.census();
        let mut found: Vec<Leftover> = census
            .members()
            .into_iter()
            .filter(|member| Some(member.pid) != daemon && !is_filter(member))
            .map(Leftover::Process)
            .collect();
        found.extend(census.mounts().into_iter().map(Leftover::Mount));
        found.extend(census.cgroups().into_iter().map(Leftover::Cgroup));
        found.extend(census.sandbox_folders().into_iter().map(Leftover::Folder));
        found
    }

    /// Waits until nothing is left.
    ///
    /// # Errors
    /// When `within` is over, with a line for each thing that is left.
    pub async fn assert_clean(&self, within: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + within;
        loop {
            let left = self.leftovers();
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() >= end {
                let lines: Vec<String> = left.iter().map(Leftover::to_string).collect();
                bail!("left behind:\n{}", lines.join("\n"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The end of the daemon's output and log.
    #[must_use]
    pub fn daemon_tail(&self) -> String {
        let log = self.scratch.folder("state").join("handler.log");
        [self.scratch.daemon_output(), log]
            .iter()
            .map(|path| tail(path))
            .collect()
    }

    /// Remembers what exists now: a cgroup is recognised later only by names learnt before.
    fn note(&self) {
        self.census().members();
    }

    fn census(&self) -> MutexGuard<'_, Census> {
        self.census.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the daemon and everything it made, as dropping does: for who never drops it.
    pub fn end(&mut self) {
        self.note();
        // The daemon first, so that it starts nothing anew.
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().ok();
            daemon.wait().ok();
        }
        sweep(&mut self.census());
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = std::io::stderr().write_all(self.daemon_tail().as_bytes());
        }
        self.end();
    }
}

/// Whether a process is the egress filter, or Podman's service: both outlive the daemon on purpose, the service
/// until it was idle for a while.
fn is_filter(member: &Member) -> bool {
    let verb = |at: usize| member.argv.get(at).map(String::as_str);
    verb(1) == Some("egress")
        || member.argv.iter().any(|part| part == "service")
            && verb(0).is_some_and(|p| p.ends_with("podman"))
}

fn read_trimmed(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(text.trim().to_owned())
}

fn tail(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(40);
    let mut end = lines[from..].join("\n");
    if !end.is_empty() {
        end.push('\n');
    }
    end
}
