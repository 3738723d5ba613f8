//! A guest, the server in front of it on a loopback port, and `ssh` with a configuration that leads there.

use handler_engine::GuestHandle;
use handler_engine::guest::GuestTiming;
use handler_engine::test_support::guest_program;
use handler_ssh::{HostKey, Target, serve};
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

/// Whatever takes longer is stuck. Machines are slow and busy; the time is no assertion.
pub(crate) const LONG: Duration = Duration::from_secs(120);

pub(crate) struct Stage {
    pub(crate) temp: tempfile::TempDir,
    pub(crate) guest: GuestHandle,
    pub(crate) stop: CancellationToken,
    config: PathBuf,
    _process: Child,
}

impl Stage {
    /// `None`, said loudly, when something is missing.
    pub(crate) async fn set(test: &str, tools: &[&str]) -> anyhow::Result<Option<Self>> {
        for tool in tools {
            if !std::path::Path::new("/usr/bin").join(tool).exists() {
                skip(test, &format!("there is no {tool}"));
                return Ok(None);
            }
        }
        let Some(program) = guest_program() else {
            skip(
                test,
                "handler-guest is not built (cargo build -p handler-guest)",
            );
            return Ok(None);
        };
        let temp = tempfile::tempdir()?;
        let (work, socket) = (temp.path().join("work"), temp.path().join("guest.sock"));
        std::fs::create_dir(&work)?;
        let process = Command::new(program)
            .args(["serve", "--socket"])
            .arg(&socket)
            .arg("--workdir")
            .arg(&work)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let guest = GuestHandle::connect(&socket, LONG, GuestTiming::default()).await?;
        let key = HostKey::of_folder(temp.path())?;
        let known_hosts = temp.path().join("known_hosts");
        std::fs::write(&known_hosts, format!("it {}\n", key.public_line()))?;
        let stop = CancellationToken::new();
        let workdir = work.to_str().expect("text").to_owned();
        let inside = guest.clone();
        let target = Target {
            guest: guest.clone(),
            home: workdir.clone(),
            workdir,
            dial: Arc::new(move |port| {
                let inside = inside.clone();
                Box::pin(async move {
                    let stream = inside.connect_port(port).await;
                    let stream = stream.map_err(std::io::Error::other)?;
                    Ok(Box::new(stream) as Box<dyn handler_ssh::Io>)
                })
            }),
        };
        let port = listen(key, target, stop.clone()).await?;
        let config = temp.path().join("config");
        std::fs::write(
            &config,
            format!(
                "Host it\nHostName 127.0.0.1\nPort {port}\nUser anyone\nHostKeyAlias it\nUserKnownHostsFile {}\n\
                 GlobalKnownHostsFile /dev/null\nStrictHostKeyChecking yes\nBatchMode yes\nLogLevel ERROR\n",
                known_hosts.display()
            ),
        )?;
        Ok(Some(Self {
            temp,
            guest,
            stop,
            config,
            _process: process,
        }))
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.temp.path().join("work")
    }

    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .arg("-F")
            .arg(&self.config)
            .current_dir(self.temp.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    pub(crate) async fn run(&self, program: &str, args: &[&str]) -> anyhow::Result<Output> {
        let mut command = self.command(program);
        command.args(args);
        Ok(tokio::time::timeout(LONG, command.output()).await??)
    }

    /// Waits until the guest knows no process any more.
    pub(crate) async fn all_forgotten(&self) -> anyhow::Result<()> {
        let end = Instant::now() + LONG;
        while !self.guest.processes().await?.is_empty() {
            anyhow::ensure!(Instant::now() < end, "a process is still known");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    pub(crate) async fn ssh(&self, command: &str) -> anyhow::Result<Output> {
        self.run("ssh", &["it", command]).await
    }
}

async fn listen(key: HostKey, target: Target, stop: CancellationToken) -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (key, target, stop) = (key.clone(), target.clone(), stop.clone());
            tokio::spawn(async move {
                serve(stream, key, target, stop).await.ok();
            });
        }
    });
    Ok(port)
}

fn skip(test: &str, why: &str) {
    use std::io::Write as _;
    let text = format!("SKIP {test}: {why}\n");
    std::io::stderr().write_all(text.as_bytes()).ok();
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
